"""The kinds of preflight findings with their weight, and one finding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_eos_provider.finding import Finding, Verdict


class Severity(StrEnum):
    """How much a finding weighs, the heaviest first."""

    BLOCKS = "blocks"
    WARNS = "warns"
    INFORMS = "informs"


@dataclass(frozen=True, slots=True)
class ConnectorFinding(Finding):
    """What one rule answers about one connector; about all of them if the subject is empty.

    :param severity: how much it weighs if it does not hold.
    :param evidence: where that was seen.
    """

    severity: Severity = Severity.INFORMS
    evidence: str = ""

    @property
    def key(self) -> str:
        """By it a finding is accepted: ``<connector>/<kind>``."""
        return f"{self.subject}/{self.kind}"

    @property
    def blocks(self) -> bool:
        """Whether the mode should not be switched on."""
        return self.verdict is Verdict.FAIL and self.severity is Severity.BLOCKS

    @property
    def may_block(self) -> bool:
        """Whether it would block if it were known, and is not."""
        return self.verdict is Verdict.INCONCLUSIVE and self.severity is Severity.BLOCKS

    @property
    def stops_tasks(self) -> bool:
        """Whether tasks that run now would fail in the mode."""
        return self.blocks and self.kind in STOPS_TASKS

    @property
    def weight(self) -> str:
        return "not known" if self.verdict is Verdict.INCONCLUSIVE else str(self.severity)

    def __str__(self) -> str:
        return f"{self.kind}: {'. '.join(self.lines())}."


@dataclass(frozen=True, slots=True)
class Kind:
    """What a rule asks, and what its findings have in common; ``report.py`` gives each its subject.

    :param name: in a word or two with dashes; scripts rely on it.
    :param fails: when it fails, and how much that weighs.
    :param why: what happens then.
    """

    name: str
    asks: str
    fails: str
    why: str
    evidence: str
    expected: str = ""
    severity: Severity = Severity.WARNS

    def holds(self, found: str) -> ConnectorFinding:
        return ConnectorFinding("", Verdict.PASS, found, kind=self.name, evidence=self.evidence)

    def failed(self, found: str, remedy: str = "", **more: Any) -> ConnectorFinding:
        return self.finding(Verdict.FAIL, found, remedy, **more)

    def unknown(self, found: str, remedy: str = "", **more: Any) -> ConnectorFinding:
        return self.finding(Verdict.INCONCLUSIVE, found, remedy, **more)

    def unreadable(self, why: str, severity: Severity | None = None) -> ConnectorFinding:
        """It is not known, for want of settings that cannot be read here."""
        remedy = "run this where that can be read: with DescribeConfigs on cluster and topics, and the workers' files"
        return self.unknown(why, remedy, severity=severity)

    def finding(
        self, verdict: Verdict, found: str, remedy: str = "", *, expected: str = "", severity: Severity | None = None
    ) -> ConnectorFinding:
        """It does not hold, or that is not known."""
        expected, severity = expected or self.expected, severity or self.severity
        return ConnectorFinding("", verdict, found, expected, remedy, self.name, "", severity, self.evidence)


_VALIDATE = "PUT /connector-plugins/…/config/validate"
_SETTINGS = "its configuration and the workers' files"
_MAX_TIMEOUT = "DescribeConfigs of the brokers: transaction.max.timeout.ms"

VALIDATION = Kind(
    "validation",
    "Do the workers accept its current configuration?",
    "warns: a worker refuses it",
    "its tasks run on, but no change of its configuration is accepted",
    _VALIDATE,
    "no complaint",
)
PLUGIN = Kind(
    "plugin",
    "Does each worker have its plugin?",
    "warns: one does not",
    "its tasks fail on that worker, and a roll moves tasks",
    _VALIDATE,
    "the same plugins on all workers",
)
OVERRIDES = Kind(
    "overrides",
    "Does the workers' override policy allow its client overrides?",
    "blocks: it refuses an override that counts in this mode",
    "its tasks fail when they start: in the mode enabled each has a consumer and an admin client too",
    _VALIDATE,
    "overrides that connector.client.config.override.policy of the workers allows",
    Severity.BLOCKS,
)
SUPPORT = Kind(
    "support",
    "Does the connector say that it delivers exactly once with this configuration?",
    "blocks: it does not, and exactly.once.support=required. Warns: it does not, and is only requested",
    "if required, no change of its configuration is accepted; its tasks run, and may deliver twice",
    f"SourceConnector::exactlyOnceSupport, by {_VALIDATE}",
    "SUPPORTED",
)
MIRROR = Kind(
    "mirror",
    "Does MirrorSourceConnector read its source committed?",
    "as support",
    "records of aborted transactions of the source cluster are copied",
    SUPPORT.evidence,
    SUPPORT.expected,
)
BOUNDARY = Kind(
    "boundary",
    "Can the connector do what its transaction.boundary asks of it?",
    "blocks: transaction.boundary=connector, and it does not define boundaries; or no such boundary exists",
    "no transaction is ever committed: each ends at its timeout, and the task fails",
    "SourceConnector::canDefineTransactionBoundaries",
    "a connector that ends its transactions itself, for transaction.boundary=connector",
    Severity.BLOCKS,
)
INTERVAL = Kind(
    "interval",
    "With transaction.boundary=interval: is a transaction over before its timeout?",
    "blocks: the interval is longer than the timeout by more than ten seconds. Warns: it is not shorter",
    "the coordinator aborts the transaction, and the task fails at its commit",
    _SETTINGS,
    "an interval that is shorter than the timeout by as long as a batch takes",
    Severity.BLOCKS,
)
TIMEOUT = Kind(
    "timeout",
    "Do the brokers allow its tasks' transaction.timeout.ms?",
    "blocks: it is above their transaction.max.timeout.ms",
    "its tasks fail when they start (InvalidTransactionTimeoutException)",
    _MAX_TIMEOUT,
    severity=Severity.BLOCKS,
)
FENCING = Kind(
    "fencing",
    "Do the brokers allow the 90 s that Connect asks for when it fences?",
    "blocks: their transaction.max.timeout.ms is less, and it has several tasks. Warns: it has one",
    "every fencing round fails, and with it all tasks of a new task set; one task for one needs no round",
    _MAX_TIMEOUT,
    "at least 90000 ms",
)
NAME = Kind(
    "name",
    "Can a worker ask the leader to fence for a connector of this name?",
    r"blocks: it has / \ or %, which Connect 4's web server takes in no path, and there are several workers",
    "its tasks fail when they start on another worker than the leader: they ask it for a fencing round over REST",
    "GET /connectors/…/topics",
    r"a name without / \ and %",
    Severity.BLOCKS,
)
MANY_TASKS = Kind(
    "many-tasks",
    "Can all its tasks be fenced within Connect's 90 s?",
    "warns: it has more than 90 tasks",
    "Connect fences about one id a second, so that each change of its tasks' configuration fails",
    "its tasks and tasks.max",
    "at most 90 tasks",
)
PRODUCER = Kind(
    "producer",
    "Do its producers' settings allow transactions?",
    "blocks: acks is not all, retries is 0, or max.in.flight.requests.per.connection is above 5",
    "its tasks fail when they start (ConfigException)",
    _SETTINGS,
    severity=Severity.BLOCKS,
)
IGNORED = Kind(
    "ignored",
    "Does it, or a worker's file, set what this mode ignores?",
    "informs: transactional.id, enable.idempotence, isolation.level of a source's consumer, offset.flush.timeout.ms",
    "Connect uses a value of its own",
    _SETTINGS,
    "no such setting",
    Severity.INFORMS,
)
RECORD_SIZE = Kind(
    "record-size",
    "Do its topics take the largest record that its producers send?",
    "warns: max.request.size is above max.message.bytes of a topic",
    "such a record fails the task, in every mode; in a transaction all of it is given up",
    "DescribeConfigs of its topics",
    "max.message.bytes of each topic not below max.request.size",
)
TRANSACTION_SIZE = Kind(
    "transaction-size",
    "How large will its transactions be?",
    "informs: never a failure; Kafka has no limit of size, but of time",
    "readers of committed records wait for the end of a transaction",
    "ListOffsets of its topics, now and a minute ago; other writers and markers count too",
    severity=Severity.INFORMS,
)
TOPICS = Kind(
    "topics",
    "Can the topics that it writes be determined?",
    "informs: they cannot",
    "their readers are unknown, too",
    "GET /connectors/…/topics",
    "the topics that it writes",
    Severity.INFORMS,
)
READERS = Kind(
    "readers",
    "Do the consumer groups of its topics read committed?",
    "warns: one does not. Inconclusive: no broker knows how a client reads",
    "a reader of uncommitted records also gets aborted records, and sees duplicates",
    "ListGroups, DescribeGroups, OffsetFetch; of a sink connector its configuration and the workers' files",
    "read_committed",
)
MARKERS = Kind(
    "markers",
    "Does a reader of its topics stumble on transaction markers?",
    "warns, inconclusive: a group looks like one of Spark's direct streams, or of Hudi",
    "a marker takes an offset, so offsets have gaps: such readers expected none",
    "the names of the group and its clients",
    "a reader that takes gaps between offsets",
)
REQUIRED = Kind(
    "required",
    "In a mode below enabled: does it require exactly-once?",
    "warns: exactly.once.support=required",
    "it runs without, and no change of its configuration is accepted",
    "its configuration",
    "the mode enabled",
)
SINK = Kind(
    "sink",
    "Is it a source connector?",
    "informs: it is a sink",
    "exactly-once source support changes nothing for it",
    "its configuration",
)
INTERNAL_TOPICS = Kind(
    "internal-topics",
    "Do all workers use the same config, offsets and status topic?",
    "blocks: they do not. Inconclusive: a config provider supplies a name, and the cluster description does not say it",
    "a connector starts over, or delivers records twice, on a worker that reads another offsets topic",
    "the workers' files",
    "the same for all workers",
    Severity.BLOCKS,
)

#: In the order in which the documents have them.
KINDS = (
    *(VALIDATION, PLUGIN, OVERRIDES, SUPPORT, MIRROR, BOUNDARY, INTERVAL, TIMEOUT, FENCING, NAME, MANY_TASKS),
    *(PRODUCER, IGNORED, RECORD_SIZE, TRANSACTION_SIZE, TOPICS, READERS, MARKERS, REQUIRED, SINK, INTERNAL_TOPICS),
)

#: Tasks of a connector with such a blocking finding fail when they start in the mode, or at their first commit. Those
#: of one whose fencing is refused fail later: with their next task set.
STOPS_TASKS = frozenset(kind.name for kind in (OVERRIDES, BOUNDARY, INTERVAL, TIMEOUT, NAME, PRODUCER))


def worst_first(findings: Iterable[ConnectorFinding]) -> list[ConnectorFinding]:
    """By weight: what blocks, what may block, what warns and so on; what holds comes last."""
    ranks = list(Severity)

    def weight(one: ConnectorFinding) -> tuple[bool, int, bool]:
        return one.passed, ranks.index(one.severity), one.verdict is Verdict.INCONCLUSIVE

    return sorted(findings, key=weight)
