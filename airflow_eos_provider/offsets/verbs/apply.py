"""Carries out a change of one connector's source offsets: stop, fence, write, read back, configure, start again.

``eos`` and Airflow's operators use it alike. Every step is safe to repeat: a stopped connector stays stopped, a fenced
id is fenced once more, and the offsets to write are compared with the current ones.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from itertools import groupby
from typing import Any, TypeVar

from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.group import describe_group
from airflow_eos_provider.connect.properties import trimmed
from airflow_eos_provider.connect.rest import TaskStatus
from airflow_eos_provider.connect.task_failures import name_failure
from airflow_eos_provider.connect.topics.config_topic import ClusterState, ConnectorConfigState, read_cluster_state
from airflow_eos_provider.connect.topics.internal_topics import (
    BROKERS_DEFAULT,
    OWN_TOPIC,
    Role,
    WantedTopic,
    read_worker_files,
)
from airflow_eos_provider.connect.transactional_ids import task_number
from airflow_eos_provider.data_text import counted, one_line
from airflow_eos_provider.errors import (
    ConfigurationError,
    ConnectRestError,
    EosError,
    FencedError,
    NothingDoneError,
    PlanMovedError,
    RefusedError,
    RestRefusedError,
)
from airflow_eos_provider.journal.group_change import PAUSE_SECONDS, GroupChange
from airflow_eos_provider.journal.journal import read_journal
from airflow_eos_provider.journal.records import ChangeRecord
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionListing, TransactionsClient
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.kafka.write.plain import write_plainly
from airflow_eos_provider.kafka.write.producer import TransactionalProducer
from airflow_eos_provider.offsets.seen.leftovers import Leftovers, find_leftovers
from airflow_eos_provider.offsets.stores import (
    OffsetStores,
    Store,
    is_elsewhere,
    require_source,
    runs_exactly_once,
    topic_of,
    unknown_connector,
)
from airflow_eos_provider.offsets.verbs.offset_changes import Write
from airflow_eos_provider.offsets.verbs.offsets_plan import (
    OFFSETS_OF,
    ConnectorLook,
    OffsetsPlan,
    PlannedTopic,
    TargetState,
)
from airflow_eos_provider.offsets.verbs.offsets_request import OffsetsRequest, Verb
from airflow_eos_provider.offsets.verbs.snapshot import OffsetsReader
from airflow_eos_provider.plan_hash import hash_of

T = TypeVar("T")

#: How long a stop, or the way back, may take: a rebalance, a leader that writes new task configurations.
SETTLE_SECONDS = 180.0

#: The tasks of a connector that was started again must run for so long, and do so within so long; seconds.
WATCH_SECONDS = 3.0
_TASKS_SECONDS = 60.0

#: Longer than a transaction of a million records takes, milliseconds; the brokers allow 15 minutes by default.
TRANSACTION_TIMEOUT_MS = 300_000

#: Limit of a write without a transaction, seconds.
_FLUSH_SECONDS = 120.0

#: Connect's message if a request took too long; it may still be carried out.
_TIMED_OUT = "Request timed out"


@dataclass(frozen=True, slots=True)
class ConnectorReport:
    """What a change did for one connector."""

    connector: str
    written: int  #: records that this process wrote
    failed: str = ""  #: why the connector does not run, although the change is done; empty if it runs

    @property
    def problem(self) -> EosError | None:
        """The error for a connector that does not run, although the change is done; None if it runs."""
        if not self.failed:
            return None
        return EosError(
            f"The offsets of {self.connector} are changed, but it does not run: {self.failed}.",
            expected="every task RUNNING",
            remedy=f"Fix the cause that the task reports. If it is the offset, see 'eos offsets list {self.connector}'"
            ", then use 'eos offsets alter' or 'restore', which start the connector again.",
        )

    def lines(self) -> list[str]:
        return [f"{self.connector}: done, {counted(self.written, 'record')} written."]

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON. Scripts rely on the names."""
        return {"connector": self.connector, "written": self.written, "failed": self.failed}


class OffsetsChanger:
    """Plans and applies changes of source offsets in one group."""

    def __init__(
        self,
        session: ConnectSession,
        config_topic: str,
        offsets_topic: str,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.session = session
        self.report = report
        self.group_id = session.cluster.group_id
        self._config_topic = config_topic
        self._offsets_topic = offsets_topic

    def plan(self, request: OffsetsRequest) -> OffsetsPlan:
        """What a change would write."""
        connector = request.connector
        # Looked up first: what is closed while the offsets are read makes the plan an old one.
        closed = self._closed(connector)
        state = self.config()
        configured = state.connectors.get(connector)
        self._require_sources(request, state)
        look = ConnectorLook(
            self.group_id,
            self.session.kafka.cluster_id(),
            connector,
            TargetState(configured.target_state) if configured else TargetState.ABSENT,
            hash_of(configured.config if configured else {}),
            runs_exactly_once(self.session),
        )
        reader = self.reader(state, exactly_once=look.exactly_once)
        own_topic = request.own_topic
        if own_topic is not None:
            assert configured is not None  # a migration is of a connector that exists
            if own_topic == (configured.config.get(OWN_TOPIC) or ""):
                own_topic = None  # it is so already
            else:
                wanted = {**configured.config, OWN_TOPIC: own_topic or None}
                require_compacted(self.stores(exactly_once=look.exactly_once).own(connector, wanted))
                self._require_valid(wanted)
        writes = reader.writes(request, look.kafka_cluster_id, self.group_id)
        if not (writes or closed):  # a closed change proves that the name was meant
            self._require_known(request, state, reader)
        reader.require_one_place(request)
        if own_topic is not None:
            _require_nothing_elsewhere(writes)
        last_change = closed[-1].change_id if closed else ""
        ended = self._ongoing(connector) if request.verb is Verb.PRUNE and look.exactly_once else ()
        topics = tuple(PlannedTopic(topic.name, topic.id, len(topic.ends)) for topic in reader.topics.values())
        return OffsetsPlan(request, look, topics, tuple(writes), own_topic, last_change, ended).without_idle_writes()

    def _require_sources(self, request: OffsetsRequest, state: ClusterState) -> None:
        """Check that the request is about a source connector that the REST API can address."""
        kinds = {name: status.type for name, status in self.session.ask(lambda rest: rest.infos()).items()}
        connector = request.connector
        for name in (connector, "" if request.file else request.source):
            require_source(name, kinds.get(name, ""))
        if connector in state.connectors:
            self.session.ask(lambda rest: rest.connector_config(connector))
        elif not request.absent and request.verb not in (Verb.RESET, Verb.PRUNE):
            remedy = None
            if request.verb is not Verb.MIGRATE:
                remedy = f"To write offsets for {connector} before it is created, add --absent."
            raise self._unknown(connector, state, kinds, remedy)

    def _require_known(self, request: OffsetsRequest, state: ClusterState, reader: OffsetsReader) -> None:
        """Check that a request with nothing to write is about a connector that exists, or has left offsets."""
        of_verb = {Verb.RESET: request.connector, Verb.PRUNE: request.connector, Verb.COPY: request.source}
        name = "" if request.file else of_verb.get(request.verb, "")
        left = {left for left in reader.global_topic().committed if left is not None}
        if name and name not in state.connectors and name not in left:
            remedy = "These names include deleted connectors that have left offsets."
            raise self._unknown(name, state, dict.fromkeys(left, ""), remedy)

    def _unknown(
        self, connector: str, state: ClusterState, kinds: Mapping[str, str], remedy: str | None
    ) -> ConfigurationError:
        known = {name for name in (*state.connectors, *kinds) if kinds.get(name) != "sink"}
        return unknown_connector(connector, self.group_id, known, remedy)

    def _ongoing(self, connector: str) -> tuple[str, ...]:
        """The transactional ids of a connector, in the workers' Kafka cluster, whose transaction has no end yet."""
        prefix = f"{self.group_id}-{connector}-"
        with self.session.kafka.transactions() as client:
            known = _known_ids(client, prefix)
        return tuple(one.transactional_id for one in known if one.state is TransactionState.ONGOING)

    def _require_valid(self, config: Mapping[str, str | None]) -> None:
        """Go on only if Connect takes this configuration."""
        given = {name: value for name, value in config.items() if value is not None}
        errors = self.session.ask(lambda rest: rest.validate(given["connector.class"], given)).errors
        if errors:
            raise ConfigurationError(
                f"Connect does not take {given.get('name')} with {OWN_TOPIC}={given.get(OWN_TOPIC, 'unset')}: "
                f"its validation finds errors in {', '.join(sorted(errors))}.",
                remedy="Correct the connector's configuration first (PUT /connector-plugins/<class>/config/validate).",
            )

    def _closed(self, connector: str) -> list[ChangeRecord]:
        """The changes of a connector's offsets that are over, in the order of the log."""
        found = read_journal(self.session.kafka, self.group_id).changes.values()
        own = [change for change in found if connector in change.plan.get("content", {}).get(OFFSETS_OF, ())]
        return [change for change in own if not change.state.is_open]

    def stores(self, *, exactly_once: bool) -> OffsetStores:
        return OffsetStores(self.session, self._offsets_topic, lambda: exactly_once)

    def reader(self, state: ClusterState, *, exactly_once: bool) -> OffsetsReader:
        return OffsetsReader(self.stores(exactly_once=exactly_once), state, self._new_partitions())

    def _new_partitions(self) -> int:
        partitions = self.own_topic("").partitions
        return Role.OWN.default_partitions if partitions in (None, BROKERS_DEFAULT) else partitions

    def own_topic(self, name: str) -> WantedTopic:
        return read_worker_files(self.session.cluster).wanted(Role.OWN, name)

    def deleted(self, leftovers: Mapping[str, Leftovers]) -> list[str]:
        """The connectors that do not exist any more and have left what a prune removes.

        That are offsets in the global topic, or, where exactly-once is on, an open transaction.
        """
        only_open = any(left.is_open and not left.offsets for left in leftovers.values())
        counts = only_open and runs_exactly_once(self.session)
        return [name for name, left in leftovers.items() if left.offsets or (counts and left.is_open)]

    def leftovers(self) -> dict[str, Leftovers]:
        """By name what connectors have left that do not exist any more, in the workers' Kafka cluster."""
        state = self.config()
        global_topic = self.reader(state, exactly_once=False).global_topic()
        with self.session.kafka.transactions() as client:
            return find_leftovers(self.group_id, state, global_topic, client)

    def config(self) -> ClusterState:
        return read_cluster_state(self.session.kafka, self._config_topic)

    def tasks(self, connector: str) -> tuple[TaskStatus, ...]:
        status = self.session.ask(lambda rest: rest.statuses()).get(connector)
        return status.tasks if status else ()

    def carry_out(self, plan: OffsetsPlan, change: GroupChange) -> ConnectorReport:
        """Carry a plan out, or go on with it where an earlier process has left it.

        :raises PlanMovedError: the connector or its offsets are not as planned. The connector is as it was before, or
            as another person has left it.
        :raises RefusedError: the connector was started or configured meanwhile. Its tasks go on with the offsets that
            they have; the same command stops it again and goes on.
        :raises EosError: it could not be finished. The connector may be stopped; the same command takes it up.
        """
        return _Act(self, plan, change).carry_out()

    def done_before(self, plan: OffsetsPlan) -> ConnectorReport:
        """The report of a plan that another process has carried out."""
        return ConnectorReport(plan.connector, 0, "" if plan.is_at_rest else _failure(self.tasks(plan.connector)))


class _Act:
    """A planned change of one connector under way."""

    def __init__(self, changer: OffsetsChanger, plan: OffsetsPlan, change: GroupChange) -> None:
        self._changer, self._plan, self._change = changer, plan, change
        self._session, self._connector = changer.session, plan.connector
        self._prefix = f"{changer.group_id}-{plan.connector}-"  # of its transactional ids
        self._stopped: ConnectorConfigState | None = None  # the connector as it was when it was stopped

    def carry_out(self) -> ConnectorReport:
        written = 0
        if not self._change.is_done("write") or self._may_have_gone_on():
            written = self._stop_and_write()
        if self._plan.own_topic is not None and not self._change.is_done("configure"):
            with self._change.step("configure"):
                self._configure()
        return ConnectorReport(self._connector, written, self._bring_back())

    def _report(self, line: str) -> None:
        self._changer.report(f"{self._connector}: {line}")

    def _until(self, look: Callable[[], T | None], what: str) -> T:
        return self._change.until(look, what, SETTLE_SECONDS)

    # what is

    def _existing(self) -> ConnectorConfigState | None:
        """The connector as it is; None if there is none, as planned. It must not be deleted or created since."""
        found = self._changer.config().connectors.get(self._connector)
        self._plan.require_existence(exists=found is not None)
        return found

    def _target_state(self) -> TargetState:
        found = self._changer.config().connectors.get(self._connector)
        return TargetState(found.target_state) if found else TargetState.ABSENT

    def _own_topic(self) -> str:
        found = self._existing()
        return (found.config.get(OWN_TOPIC) or "") if found else ""

    def _is_configured(self) -> bool:
        return self._own_topic() == self._plan.own_topic

    def _require_untouched(self, *, unless_configured: bool = False) -> None:
        """Go on only if the connector was not started, even for a moment: that writes another commit record.

        A retry must not undo that by itself.

        :param unless_configured: what others configure does not matter.
        """
        now, before = (
            state and (state.target_state, state.commit_offset, unless_configured or state.config_offset)
            for state in (self._existing(), self._stopped)
        )
        if now != before:
            raise _touched(self._connector)

    def _may_have_gone_on(self) -> bool:
        """Whether a migration that is taken up has to move the offsets once more.

        Until the connector has its new configuration its tasks read and write the former place; if an operator has
        started it meanwhile, what was moved is behind.
        """
        if self._plan.own_topic is None or self._change.is_done("configure") or self._is_configured():
            return False
        self._plan.require_own_topic(self._own_topic())
        return True

    # stop, fence, write

    def _stop_and_write(self) -> int:
        """The first steps, each of which may be repeated; returns how many records were written."""
        created, change = self._plan.created, self._change
        try:
            if created is not None and not change.is_done("create"):
                with change.step("create"):
                    self._create(created)
            with change.step("stop"):
                self._stopped = self._stop()
            if self._plan.look.exactly_once:
                with change.step("fence"):
                    self._require_untouched()  # what runs now is no zombie
                    self._fence()
            with change.step("write"):
                return self._write()
        except NothingDoneError:
            self._bring_back(watch=False)
            raise
        except ConfigurationError as error:
            # The principal may not: the connector need not wait for its rights where nothing is written yet. Where
            # Connect refused even the stop, there is nothing to bring back, and the change is closed.
            was_stopped = change.is_done("stop") or not isinstance(error, RestRefusedError)
            if was_stopped and not change.is_done("fence" if self._plan.look.exactly_once else "stop"):
                with contextlib.suppress(EosError):  # the refusal is the error to report
                    self._bring_back(watch=False)
            raise

    def _create(self, planned: PlannedTopic) -> None:
        """Create an own topic as a worker does; with fewer copies where there are fewer brokers."""
        store = self._planned_stores()[planned.name]
        topics, wanted = Topics(store.kafka.settings), self._changer.own_topic(store.topic)
        replicas = wanted.replicas
        if replicas is not None and replicas != BROKERS_DEFAULT:
            replicas = min(replicas, topics.brokers())
        if not topics.create(store.topic, planned.partitions, wanted.settings, replicas):
            require_compacted(store)  # it was made since
        self._changer.report(f"topic {planned.name} is created: {planned.partitions} partitions.")

    def _stop(self) -> ConnectorConfigState | None:
        """Stop the connector, if it exists, and wait until no worker has a task of it; returns it as it is then."""
        if self._existing() is None:
            return None
        self._change.confirm("stop")
        self._report("stopping it, and waiting until no worker runs a task of it.")
        self._session.ask(lambda rest: rest.stop(self._connector))
        self._until(self._is_to_stop, f"the stop of {self._connector} on record")
        return self._until(self._when_stopped, f"{self._connector} to stop")

    def _is_to_stop(self) -> bool:
        found = self._existing()
        return found is not None and found.target_state == TargetState.STOPPED

    def _when_stopped(self) -> ConnectorConfigState | None:
        """The connector, if it is stopped: no tasks on record (KIP-875), and none with a member of the group."""
        found = self._existing()
        if found is not None and found.target_state != TargetState.STOPPED:
            raise _touched(self._connector)
        if found is None or found.task_count:
            return None
        return None if describe_group(self._session.kafka, self._changer.group_id).may_run(self._connector) else found

    def _fence(self) -> None:
        """Shut out every producer of the connector's tasks, zombies with an open transaction too."""
        count = max((self._stopped and self._stopped.task_count_record) or 0, 1)
        for cluster_id, kafka in self._clusters(self._own_stores(self._connector).values()).items():
            with kafka.transactions() as client:
                ids = {f"{self._prefix}{number}" for number in range(count)}
                # Tasks of a higher number that it had once, too, open or not.
                ids.update(one.transactional_id for one in _known_ids(client, self._prefix))
                client.fence(ids)
            where = f" in the Kafka cluster {cluster_id}" if cluster_id else ""
            self._report(f"{counted(len(ids), 'transactional id')} fenced{where}.")

    def _planned_stores(self) -> dict[str, Store]:
        """By name the stores of the change; one in another Kafka cluster must still be where its clients are."""
        names = {topic.name for topic in self._plan.topics}
        found = {name: Store(name, self._session.kafka) for name in names if not is_elsewhere(name)}
        if lost := names - found.keys():
            known = {**self._own_stores(self._plan.request.source), **self._own_stores(self._connector)}
            if not lost <= known.keys():
                raise PlanMovedError(
                    f"The clients of {self._connector} no longer use the Kafka cluster in which it has "
                    f"{', '.join(sorted(map(topic_of, lost)))}.",
                    remedy="Make the plan again.",
                )
            found |= {name: known[name] for name in lost}
        return found

    def _own_stores(self, connector: str) -> dict[str, Store]:
        """By name the own stores that a connector of the change has, or is to have. No connector has none."""
        if not connector:
            return {}
        stores = self._changer.stores(exactly_once=self._plan.look.exactly_once)
        state, own_topic = self._changer.config().connectors.get(connector), self._plan.own_topic
        config: Mapping[str, str | None] = state.config if state else {}
        wanted = [config] if own_topic is None else [config, {**config, OWN_TOPIC: own_topic}]
        found = [stores.own(connector, each) for each in wanted]
        return {store.name: store for store in found if store is not None}

    def _clusters(self, stores: Iterable[Store]) -> dict[str, Session]:
        """By id the Kafka clusters of these stores; that of the workers, whose id is empty here, before others."""
        found = {"": self._session.kafka, **{store.cluster_id: store.kafka for store in stores}}
        return dict(sorted(found.items()))

    def _write(self) -> int:
        """Write what is not written yet, and read it back."""
        self._require_untouched()  # before the write takes the id of a task that runs again
        left = self._left_to_write()
        self._plan.require_within(left)
        if left:
            self._change.confirm("write")
            remaining = self._left_to_write() if self._checked_by_connector() else left
            # What the tasks read may be in another Kafka cluster than the workers': it is written last.
            stores = self._planned_stores()
            for cluster_id, kafka in self._clusters(stores.values()).items():
                if there := [write for write in remaining if stores[write.topic].cluster_id == cluster_id]:
                    self._write_there(kafka, there)
        missing = self._left_to_write()
        if missing:
            raise EosError(
                f"{len(missing):,} of {counted(len(left), 'record')} do not have the value that was written: another "
                f"program writes to {', '.join(sorted({write.topic for write in missing}))}.",
                remedy="Find it with 'eos offsets list -o wide'; then give the same command again.",
            )
        self._report(f"{counted(len(left), 'record')} written, and read back.")
        return len(left)

    def _checked_by_connector(self) -> bool:
        """Let the connector check new offsets: ``SourceConnector.alterOffsets``, which Connect calls before it writes.

        Connect cannot only check: it also writes these offsets, which this change would write anyway. If it did not
        answer in time, it may have written them.

        :returns: whether Connect has checked and written them.
        """
        wanted = self._reader().checked_offsets(self._plan.request)
        if not wanted:
            return False
        try:
            self._session.ask(lambda rest: rest.alter_offsets(self._connector, wanted))
        except ConnectRestError as error:
            # Before 3.6 there is no such request. 4.3.1 fails before it checks where the connector has never run.
            if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED) or "taskConfig" in error.found:
                self._report(f"Connect cannot check the new offsets ({one_line(error.found)}).")
                return False
            if _TIMED_OUT in error.found or error.status not in (400, 500):
                raise
            raise NothingDoneError(
                f"{self._connector} does not take these offsets: {error.found}",
                remedy="Nothing was written. Correct the offsets and make the plan again.",
            ) from error
        return True

    def _write_there(self, kafka: Session, writes: list[Write]) -> None:
        """Write into one Kafka cluster."""
        if not self._plan.look.exactly_once:
            self._require_untouched()
            for topic, those in groupby(sorted(writes, key=_topic), key=_topic):
                records = [(write.kafka_partition, write.key, write.after) for write in those]
                write_plainly(kafka, topic, records, "writing source offsets", seconds=_FLUSH_SECONDS)
            self._require_untouched()
            return
        # The id of the connector's first task: Connect fences it before any task starts, and a task takes it before it
        # reads offsets (``ExactlyOnceWorkerSourceTask``). So no task can begin between this write and its commit.
        id_ = f"{self._prefix}0"
        producer = TransactionalProducer(kafka.settings, id_, timeout_ms=TRANSACTION_TIMEOUT_MS)
        try:
            producer.init()
            producer.begin()
            try:
                for write in writes:
                    producer.produce(topic_of(write.topic), write.key, write.after, partition=write.kafka_partition)
                producer.flush()
                self._require_untouched()
                producer.commit()
            except BaseException:
                producer.abort()
                raise
        except FencedError as error:
            raise RefusedError(
                f"Nothing was written: another producer took the transactional id {id_}, so a task of the connector "
                "was started, or Connect fenced it, in the meantime.",
                remedy="Find out who started the connector; then give the same command again.",
            ) from error

        def is_marked() -> bool:
            """Whether the write has ended everywhere: a commit returns before its markers are in the topics."""
            with kafka.transactions() as client:
                return not any(known.state.is_open for known in client.describe([id_]).values())

        self._until(is_marked, f"the markers of the offsets written for {self._connector}")

    def _left_to_write(self) -> list[Write]:
        """What the change would write now. No topic may have been created again, or have other partitions."""
        reader, look = self._reader(), self._plan.look
        writes = reader.writes(self._plan.request, look.kafka_cluster_id, look.group_id)
        for planned in self._plan.topics:
            topic = reader.topics.get(planned.name)
            is_new = planned == self._plan.created
            same = topic is not None and len(topic.ends) == planned.partitions and (is_new or topic.id == planned.id)
            if not same:
                raise PlanMovedError(
                    f"The topic {planned.name} is not the planned one: it was created again, or has other partitions.",
                    remedy="Make the plan again.",
                )
        return [write for write in writes if write.changes]

    def _reader(self) -> OffsetsReader:
        return self._changer.reader(self._changer.config(), exactly_once=self._plan.look.exactly_once)

    # configure

    def _configure(self) -> None:
        """Give the stopped connector its own offsets topic, or take it away.

        If it was started since, its tasks may have written newer offsets in the former place. If it was started in the
        moment of the request, what it has delivered then may come again.
        """
        self._existing()
        config = self._session.ask(lambda rest: rest.connector_config(self._connector))
        own_topic, what = trimmed(config).get(OWN_TOPIC) or "", f"{self._connector} to have its new configuration"
        self._plan.require_own_topic(own_topic)
        if own_topic != self._plan.own_topic:
            self._change.confirm("configure")
            self._require_untouched(unless_configured=True)
            self._set_own_topic(config)
            self._until(self._is_configured, what)
            self._require_untouched(unless_configured=True)  # a rebalance may have held the request up
        self._until(self._is_configured, what)
        self._report(f"{OWN_TOPIC} is {self._plan.own_topic or 'not set any more'}.")

    def _set_own_topic(self, config: Mapping[str, str]) -> None:
        """Change this property alone, so that what others change at this moment stays.

        :param config: the whole configuration, for workers before 3.8 (KIP-477); there a connector that is deleted at
            this moment is created again.
        """
        own_topic = self._plan.own_topic or None
        try:
            self._session.ask(lambda rest: rest.patch_config(self._connector, {OWN_TOPIC: own_topic}))
        except ConnectRestError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                self._existing()
            if error.status != HTTPStatus.METHOD_NOT_ALLOWED:
                raise
            others = {name: value for name, value in config.items() if name != OWN_TOPIC}
            wanted = {**others, **({OWN_TOPIC: own_topic} if own_topic else {})}
            self._session.ask(lambda rest: rest.put_config(self._connector, wanted))

    # start again

    def _bring_back(self, *, watch: bool = True) -> str:
        """Give the connector the state that it had before, unless another person has given it one meanwhile.

        :returns: why it does not run; empty if it does, or is not to.
        """
        if self._plan.is_at_rest:
            return ""
        before = self._plan.look.target_state
        with self._change.step("start"):
            self._change.confirm("start")
            if self._plan.returns_to(self._target_state()) is not None:
                resumes = before is TargetState.STARTED
                self._session.ask(lambda rest: rest.resume(self._connector) if resumes else rest.pause(self._connector))
            now = self._until(self._settled, f"{self._connector} to be {before} again")
            failed = self._watch() if watch and now is TargetState.STARTED else ""
        self._report(f"{failed or now}.")
        return failed

    def _settled(self) -> TargetState | None:
        """The connector's state, once it has that in which it is left."""
        wanted, now = self._plan.look.target_state, self._target_state()
        if now is not wanted:
            return now if self._plan.returns_to(now) is None else None
        status = self._session.ask(lambda rest: rest.statuses()).get(self._connector)
        is_there = status is not None and status.state == ("RUNNING" if wanted is TargetState.STARTED else "PAUSED")
        return now if is_there else None

    def _watch(self) -> str:
        """Watch a connector until its tasks have run for :data:`WATCH_SECONDS`; returns why it does not run.

        A task reads its offset when it starts, or at its first poll. If it does not understand it, it fails then.
        """
        begun = time.monotonic()
        running_since: float | None = None
        while True:
            now = time.monotonic()
            tasks = self._changer.tasks(self._connector)
            if failure := _failure(tasks):
                return failure
            if tasks and all(task.state == "RUNNING" for task in tasks):
                running_since = running_since or now
                if now - running_since >= WATCH_SECONDS:
                    return ""
            elif self._target_state() is not TargetState.STARTED:
                return ""  # another person has stopped, paused or deleted it
            else:
                running_since = None
            if now - begun >= _TASKS_SECONDS:
                states = ", ".join(f"task {task.number} is {task.state}" for task in tasks) or "it has no task"
                return f"{states} after {_TASKS_SECONDS:.0f} s"
            self._change.renew()
            time.sleep(PAUSE_SECONDS)


def require_compacted(own: Store | None) -> None:
    """Go on only if an own topic that is there already keeps the newest offset of each key."""
    if own is None:
        return
    topics = Topics(own.kafka.settings)
    if not topics.is_there(own.topic):
        return
    policy = topics.settings_of([own.topic])[own.topic]["cleanup.policy"]
    if policy != "compact":
        raise ConfigurationError(
            f"Topic {own.name} has cleanup.policy={policy}: offsets would be deleted there after a time.",
            expected="cleanup.policy=compact",
            remedy=f"Set cleanup.policy=compact on {own.name}, or name another topic.",
        )


def _require_nothing_elsewhere(writes: Iterable[Write]) -> None:
    """Go on only if a migration replaces nothing in another Kafka cluster.

    A group of the same name there may have a connector of the same name, whose tasks read what would be replaced.
    """
    replaced = sorted({w.topic for w in writes if is_elsewhere(w.topic) and w.changes and w.before is not None})
    if replaced:
        raise RefusedError(
            f"{replaced[0]}, in another Kafka cluster, already has offsets under keys of this connector: a "
            "connector of the same name may use them there.",
            remedy="Name another topic ('--to own --topic …').",
        )


def _topic(write: Write) -> str:
    return topic_of(write.topic)


def _known_ids(client: TransactionsClient, prefix: str) -> list[TransactionListing]:
    """The ids of a connector's tasks that the brokers know."""
    return [one for one in client.list(prefix) if task_number(one.transactional_id, prefix) is not None]


def _failure(tasks: Iterable[TaskStatus]) -> str:
    """Which task has failed, and why; empty if none has."""
    failed = next((task for task in tasks if task.state == "FAILED"), None)
    return f"task {failed.number} has failed: {name_failure(failed.trace)}" if failed else ""


def _touched(connector: str) -> RefusedError:
    return RefusedError(
        f"{connector} was started or configured while its offsets were being changed.",
        expected="a connector that stays stopped and unchanged until the change is over",
        remedy="Find out by whom. Then run the same command again: it stops the connector and resumes.",
    )
