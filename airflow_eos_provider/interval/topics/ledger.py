"""The ledger: a pipeline's own offsets topic, in Connect's format.

``["<pipeline>",{"slice":n,"interval":"<start>/<end>"}]`` says that a slice is committed; it is in the transaction
of the slice's own records. ``["<pipeline>",{"interval":"<start>/<end>"}]`` says that all of an interval is, and is
never removed; the slices' records are, with it.

``["<pipeline>",{"claim":"<uuid>"}]`` says which group and which control topic the ledger belongs to, by name and topic
id. Two drivers with different ones would not know of each other, so the first claim in the log's order counts, from
any driver. All claims are in partition 0, each has a key of its own, and none is removed: compaction keeps their order.
Where the control topic was deleted and created again, a claim replaces the one before, which it names. The model has
claims that are written at once, and that are not read again (tests/model, ``topics/…``).

*Parts.* If an interval is complete, every interval inside it is complete: its records were written with the others.
This is true if the whole had ended when the input of its last attempt was listed (before that, records of a part could
still arrive), and if that input has all rows of the whole, which the caller declares. ``complete`` records this as
``ended``. The model runs a driver of a part together with two of the whole (tests/model, ``admission/contained``).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import Any

from airflow_eos_provider.connect.topics.jackson import Json, encode, hash_map_order
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.interval.interval import Interval, Run, Wholes
from airflow_eos_provider.interval.topics.control_topic import Outgoing
from airflow_eos_provider.interval.topics.pins import Pins, TopicPin
from airflow_eos_provider.kafka.read.reader import LogRecord

#: Digests add up modulo this.
DIGEST_MODULUS = 1 << 128

_KEY_AND_VALUE = itemgetter(*map(LogRecord._fields.index, ("key", "value")))

#: How digests are computed now; what they are of and how they add up has not changed since kind 1, of which a record
#: says nothing. Raise it with every change to :mod:`~airflow_eos_provider.interval.write.digest`.
DIGEST_KIND = 3

#: The digest of no records.
NO_DIGEST = f"{0:032x}"


#: The stages of a slice that are over when its ledger record is written, in milliseconds there.
_MEASURED_STAGES = ("read", "produce", "flush")


@dataclass(frozen=True, slots=True)
class SliceMeasures:
    """How a slice was written, which nothing rests on."""

    bytes: int = 0
    task: int = 0
    attempt: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)

    def to_values(self) -> dict[str, Json]:
        """As members of a slice's ledger record, whole numbers alone."""
        stages = {f"{stage}_ms": round(1000 * self.seconds.get(stage, 0.0)) for stage in _MEASURED_STAGES}
        return {"bytes": self.bytes, "task": self.task, "attempt": self.attempt, **stages}

    @classmethod
    def of_values(cls, values: Mapping[str, Any]) -> SliceMeasures:
        """What :meth:`to_values` wrote."""
        stages = {stage: values[f"{stage}_ms"] / 1000 for stage in _MEASURED_STAGES if f"{stage}_ms" in values}
        return cls(values.get("bytes", 0), values.get("task", 0), values.get("attempt", 0), stages)


@dataclass(frozen=True, slots=True)
class SliceRecord:
    """A slice's ledger record.

    :param topics: the topics that its rows named, without the pipeline's own.
    :param placed: digest of those that name their partition or time themselves, with both; left out where none does.
    """

    plan: str
    records: int
    digest: str
    topics: tuple[str, ...] = ()
    placed: str = NO_DIGEST
    measures: SliceMeasures = field(default=SliceMeasures(), compare=False)
    digest_kind: int = DIGEST_KIND


@dataclass(frozen=True, slots=True)
class CompleteRecord:
    """An interval's ``complete``.

    :param ended: whether the interval had ended, by the driver's clock, when the input of the completing attempt was
        looked up, and that input is known to have all rows of it. Then every interval within it is complete, too.
    """

    run: Run
    records: int
    digest: str
    slices: int
    pins: Pins | None = None
    summary: str | None = field(default=None, compare=False)
    digest_kind: int = DIGEST_KIND
    ended: bool = False


#: The partition of a ledger that has the claims.
CLAIMS_PARTITION = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """Whose ledger it is.

    :param replaces: id of the control topic of the claim before, which does not exist any more; empty for none.
    """

    group: str
    control: TopicPin
    replaces: str = ""

    def follows(self, other: Claim) -> bool:
        """Whether this claim's control topic has the name and group of another claim, and a new id."""
        is_same = (self.group, self.control.name) == (other.group, other.control.name)
        return is_same and self.control.id != other.control.id

    def __str__(self) -> str:
        return f"group {self.group} and control topic {self.control}"


def claim_record(pipeline: str, claim: Claim, key: str = "") -> Outgoing:
    """What says whose the ledger is; it belongs into :data:`CLAIMS_PARTITION`."""
    value = {"group": claim.group, "control": claim.control.name, "controlId": claim.control.id}
    more = {"replaces": claim.replaces} if claim.replaces else {}
    name = encode([pipeline, {"claim": key or uuid.uuid4().hex}])
    return Outgoing(name, encode(hash_map_order({**value, **more})))


def slice_key(run: Run, number: int) -> bytes:
    """The ledger key of a slice."""
    return encode([run.pipeline, hash_map_order({**run.key, "slice": number})])


def complete_key(run: Run) -> bytes:
    """The ledger key of a whole interval."""
    return encode([run.pipeline, hash_map_order(dict(run.key))])


def slice_record(run: Run, number: int, record: SliceRecord) -> Outgoing:
    """What says that a slice is committed."""
    value: dict[str, Json] = {"position": record.records, "plan": record.plan, "done": True, "digest": record.digest}
    value |= {"digest_kind": record.digest_kind, **record.measures.to_values()}
    if record.topics:
        value["topics"] = ",".join(record.topics)  # Connect's offsets hold no lists, and no topic has a comma
    if record.placed != NO_DIGEST:
        value["placed"] = record.placed
    return Outgoing(slice_key(run, number), encode(hash_map_order(value)))


def complete_record(record: CompleteRecord) -> Outgoing:
    """What says that an interval is complete."""
    value: dict[str, Json] = {
        "complete": True,
        "records": record.records,
        "digest": record.digest,
        "digest_kind": record.digest_kind,
        "slices": record.slices,
        **({} if record.pins is None else record.pins.to_values()),
        **({} if record.summary is None else {"summary": record.summary}),
        **({"ended": True} if record.ended else {}),
    }
    return Outgoing(complete_key(record.run), encode(hash_map_order(value)))


def add_digests(digests: Iterable[str]) -> str:
    """The digest of the union of disjoint sets of records."""
    return f"{sum(int(digest, 16) for digest in digests) % DIGEST_MODULUS:032x}"


def require_comparable(run: Run, records: Mapping[int, SliceRecord]) -> None:
    """Check that the digests of committed slices can be compared with those of an attempt's rows."""
    for number, record in records.items():
        if record.digest_kind != DIGEST_KIND:
            raise EosError(
                f"Slice {number} of {run} was committed by another version of this package, with a digest of kind "
                f"{record.digest_kind}.",
                expected=f"kind {DIGEST_KIND}, because the rows of an attempt are compared with the committed ones",
                remedy="Finish the run with the version that started it. Committed slices do not change.",
            )


class LedgerState:
    """A pipeline's ledger, replayed record by record; partitions may mingle.

    Values are read when asked for: a ledger may hold a hundred thousand intervals, and a run looks at one.
    """

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._latest: dict[bytes, bytes | None] = {}
        ours = encode([pipeline])[:-1]
        self._complete_prefix = ours + b',{"interval":"'
        self._slice_prefix = ours + b',{"slice":'
        self._claim_prefix = ours + b',{"claim":"'
        self._claim_keys: list[bytes] = []
        self._scanned = 0

    def apply(self, records: Iterable[LogRecord]) -> None:
        """Go on with further records."""
        # No step of Python is done once a record: a ledger may hold a hundred thousand, and each run passes them all.
        latest: dict[Any, Any] = self._latest
        latest.update(map(_KEY_AND_VALUE, records))
        latest.pop(None, None)  # a foreign record without a key

    def completed(self, run: Run) -> CompleteRecord | None:
        """The run's ``complete``, None if it is not complete."""
        value = self._latest.get(complete_key(run))
        return None if value is None else _complete(run, json.loads(value))

    def whole_of(self, run: Run) -> CompleteRecord | None:
        """The ``complete`` of a wider interval, as a part of which this run is complete; None if there is none."""
        return self.whole_among(run, self.overlapping(run.interval))

    def whole_among(self, run: Run, overlapping: Iterable[Run]) -> CompleteRecord | None:
        """As :meth:`whole_of`, of the complete runs that overlap it."""
        return self._if_ended(Wholes(overlapping).of(run))

    def wholes(self, intervals: Collection[Interval]) -> dict[Interval, CompleteRecord]:
        """For those intervals that are complete as a part of a wider one: its ``complete``."""
        if not intervals:
            return {}
        known = Wholes(self.overlapping(Interval(min(i.start for i in intervals), max(i.end for i in intervals))))
        found = ((interval, self._if_ended(known.around(interval))) for interval in intervals)
        return {interval: whole for interval, whole in found if whole is not None}

    def _if_ended(self, whole: Run | None) -> CompleteRecord | None:
        """The ``complete`` of a run, if its interval had ended."""
        found = None if whole is None else self.completed(whole)
        return found if found is not None and found.ended else None

    def done(self, run: Run, slices: Iterable[int]) -> dict[int, SliceRecord]:
        """Those of the slices that are committed and not yet removed."""
        found = {}
        for number in slices:
            value = self._latest.get(slice_key(run, number))
            if value is not None:
                document = json.loads(value)
                topics = tuple(filter(None, document.get("topics", "").split(",")))
                placed = document.get("placed", NO_DIGEST)
                measures, kind = SliceMeasures.of_values(document), document.get("digest_kind", 1)
                found[number] = SliceRecord(
                    document["plan"], document["position"], document["digest"], topics, placed, measures, kind
                )
        return found

    @property
    def claim(self) -> Claim | None:
        """The claim that counts; None if there is none yet."""
        found: Claim | None = None
        gone = set()
        # Keys keep their places, and those of a large ledger are looked at once.
        new = islice(self._latest, self._scanned, None)
        self._claim_keys += [key for key in new if key.startswith(self._claim_prefix)]
        self._scanned = len(self._latest)
        for value in filter(None, map(self._latest.get, self._claim_keys)):
            document = json.loads(value)
            control = TopicPin(document["control"], document["controlId"])
            claim = Claim(document["group"], control, document.get("replaces", ""))
            if found is None:
                found = claim
            elif claim.follows(found) and claim.replaces == found.control.id and control.id not in gone:
                gone.add(found.control.id)
                found = claim
        return found

    def begun(self) -> set[Run]:
        """The runs that have committed slices and are not complete."""
        keys = [key for key, value in self._latest.items() if key.startswith(self._slice_prefix) and value is not None]
        return {Run.parse(f"{self._pipeline}@{json.loads(key)[1]['interval']}") for key in keys}

    def complete_runs(self) -> Iterator[CompleteRecord]:
        """Every complete interval, in no order."""
        for key, value in self._latest.items():
            if value is not None and key.startswith(self._complete_prefix):
                yield _complete(self._run_of(key), json.loads(value))

    def overlapping(self, interval: Interval) -> list[Run]:
        """The complete runs whose interval overlaps this one, all revisions of itself included."""
        # Text order is time order in canonical names, and comparing bytes is what a large ledger can afford. Most
        # intervals end before this one begins, so that is asked first.
        start, _, end = interval.name.encode().partition(b"/")
        prefix = self._complete_prefix
        first = len(prefix)
        ends_at = slice(first + len(start) + 1, first + len(start) + 1 + len(end))
        found = [
            key
            for key, value in self._latest.items()
            if key[ends_at] > start
            and value is not None
            and key.startswith(prefix)
            and key[first : first + len(start)] < end
        ]
        return list(map(self._run_of, found))

    def _run_of(self, key: bytes) -> Run:
        """The run whose ``complete`` has this key."""
        name = key[len(self._complete_prefix) : -len(b'"}]')].decode()
        return Run.parse(f"{self._pipeline}@{name}")


def _complete(run: Run, document: dict[str, Any]) -> CompleteRecord:
    if document.get("complete") is not True:
        raise EosError(
            f"The ledger's record of {run} is not one of a complete interval.",
            remedy="Look at the record; it was not written by this package.",
        )
    return CompleteRecord(
        run,
        document["records"],
        document["digest"],
        document.get("slices", 0),
        Pins.of_values(document),
        document.get("summary"),
        document.get("digest_kind", 1),
        document.get("ended", False),
    )
