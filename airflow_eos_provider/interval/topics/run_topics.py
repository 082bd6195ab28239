"""Checks that a run has the topics that it was started with.

A comparison can only stop a run, never permit anything. The first one comes before the coordinator's init, so that a
driver with other topics does not fence the running one. Further ones follow with each read of the control topic, and
with an adopted plan or ``complete``. After the stage, and again right before ``complete`` is written, the topics are
looked up again: a topic that was recreated in between lacks the run's records.
"""

from __future__ import annotations

from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.progress import Report, silent
from airflow_eos_provider.interval.topics.control_topic import ControlReader, ControlState
from airflow_eos_provider.interval.topics.ledger import Claim, CompleteRecord, LedgerState
from airflow_eos_provider.interval.topics.pins import Pinned, Pins, TopicChangedError, TopicPin, require_same
from airflow_eos_provider.interval.topics.preparation import find_topics, prepare_topics
from airflow_eos_provider.interval.topics.reserved import require_data
from airflow_eos_provider.interval.topics.run_reader import TopicReader
from airflow_eos_provider.kafka.kafka_session import Kafka
from airflow_eos_provider.kafka.topics import Topics

#: Of so many runs an error has the names.
_SHOWN_RUNS = 5


class RunTopics:
    """The topics of one run."""

    def __init__(
        self,
        pipeline: Pipeline,
        run: Run,
        *,
        report: Report = silent,
        kafka: Kafka | None = None,
        control: ControlReader | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._kafka = kafka or pipeline.kafka
        self._control = control or ControlReader(self._kafka, pipeline.control_topic, report=report)
        self._run = run
        self._found: Pins | None = None

    @property
    def claim(self) -> Claim:
        """The claim of this run's group and control topic on its ledger."""
        assert self.found.control is not None
        return Claim(self._pipeline.group_id, self.found.control)

    @property
    def found(self) -> Pins:
        """The topics as they were looked at first; ``complete`` pins these."""
        if self._found is None:
            self._found = find_topics(self._pipeline, self._kafka)
        return self._found

    def prepare(self, ledger: LedgerState, ledger_topic: TopicReader) -> None:
        """Make what is missing, check the rest, and compare with what the control topic and the ledger have already.

        Both are read as far as they are stable: only the init that is to follow ends what this run's last driver may
        have left open.
        """

        def read_ledger() -> None:
            ledger_topic.read_stable(ledger.apply)
            self._require_claimable(ledger)

        def before_creating(found: Pins) -> None:
            self._found = found
            if not found.ledger.id and self.claim.control.id:
                self._require_new_pipeline()
            elif found.ledger.id and not self.claim.control.id:
                read_ledger()

        self._found, control_was_there = prepare_topics(self._pipeline, before_creating, self._kafka)
        self._control.topic_id = self.claim.control.id or None
        ledger_topic.topic_id = self.found.ledger.id or None
        read_ledger()
        if control_was_there:
            control = self._control.read_stable()
            self.compare(control)
            if self._pipeline.topic is not None:
                require_data(self._pipeline.topic, self._pipeline, control.ledgers)

    def compare(self, control: ControlState) -> None:
        """Compare with the pipeline's record and the run's plan."""
        self._require_same(control.pinned(self._run), self.found)

    def compare_complete(self, record: CompleteRecord) -> None:
        """Compare with a ``complete`` that is taken for this run's end."""
        self._require_same([Pinned("its complete", record.pins)], self.found)

    def _require_claimable(self, ledger: LedgerState) -> None:
        """Check that the ledger is this group's and control topic's, or may be, since the one before is gone."""
        if (held := ledger.claim) is None or not self.claim.follows(held):
            self.compare_claim(ledger)
        elif begun := sorted(run.name for run in ledger.begun()):
            raise TopicChangedError(
                f"{self._run}: the control topic {held.control} was deleted, and {len(begun)} runs are committed in "
                f"part: {', '.join(begun[:_SHOWN_RUNS])}. Their plans are lost.",
                expected="a control topic that is deleted only while no run is in progress",
                remedy="Find out which records of these intervals are in the target, and write the missing ones under "
                "another pipeline name.",
            )

    def replaced_claim(self, ledger: LedgerState) -> Claim | None:
        """The claim whose control topic is gone, and which this run's claim may replace; None if it is this run's."""
        self._require_claimable(ledger)
        if (held := ledger.claim) is None or not self.claim.follows(held):
            return None
        self.compare_again()  # the broker that described the topics may not have heard of the new one
        return held

    def compare_claim(self, ledger: LedgerState) -> None:
        """Compare with the group and control topic that the ledger belongs to."""
        held, ours = ledger.claim, self.claim
        if held is None or (held.group, held.control) == (ours.group, ours.control):
            return
        if ours.follows(held):
            remedy = (
                "Run the interval again. If no run is committed in part, the new control topic replaces the old one."
            )
        else:
            remedy = f"Give the pipeline group_id={held.group} and control_topic={held.control.name} again."
        raise TopicChangedError(
            f"{self._run}: the ledger {self.found.ledger.name} belongs to {held}; this pipeline has {ours}.",
            expected="one group and one control topic for a ledger: drivers with others do not know of its runs",
            remedy=remedy,
        )

    def compare_ids(self, ledger_id: str, control_id: str) -> None:
        """Compare with the topics of a generation."""
        ledger, control = TopicPin(self._pipeline.ledger_topic, ledger_id), self.claim.control
        pins = Pins(ledger, control=TopicPin(control.name, control_id))
        self._require_same([Pinned("its stage", pins, with_target=False)], self.found)

    def compare_again(self) -> None:
        """Look at the topics anew, and compare with the first look."""
        self._require_same([Pinned("when it was begun", self.found)], find_topics(self._pipeline, self._kafka))

    def _require_same(self, pinned: list[Pinned], found: Pins) -> None:
        require_same(str(self._run), pinned, found)

    def _require_new_pipeline(self) -> None:
        """Check, before a ledger is made, that none was lost; the control topic knows each pipeline that had one."""
        pipeline = self._pipeline
        control = self._control.read()
        planned = control.planned(pipeline.name)
        if pipeline.name not in control.pipelines and not planned:
            return
        if Topics(self._kafka).is_there(pipeline.ledger_topic):
            return  # another driver has made it meanwhile, and then noted it
        pins = control.pipelines.get(pipeline.name) or next((p for r in planned if (p := control.run(r).pins)), None)
        known = f"its ledger is {pins.ledger}" if pins else f"{planned[0]} is in progress" if planned else "it had one"
        raise TopicChangedError(
            f"{self._run}: there is no ledger topic {pipeline.ledger_topic}, but the control topic "
            f"{pipeline.control_topic} lists the pipeline: {known}.",
            expected="the pipeline's original ledger; a new one has no record of written intervals",
            remedy="Set ledger_topic to the original ledger. If it was deleted, find out which records are in the "
            "target, and write the missing ones under another pipeline name.",
        )
