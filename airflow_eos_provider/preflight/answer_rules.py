"""What the workers answer about a connector: its configuration, its plugin, its overrides, exactly-once, boundaries.

Connect's texts are from ``DistributedHerder.validateSourceConnectorExactlyOnceSupport`` and
``validateSourceConnectorTransactionBoundary`` (3.3 to 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from airflow_eos_provider.connect.mode_evidence import NOT_ENABLED, SUPPORT_PROPERTY
from airflow_eos_provider.connect.properties import references
from airflow_eos_provider.connect.topics.internal_topics import OWN_TOPIC
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.preflight.findings import (
    BOUNDARY,
    MIRROR,
    OVERRIDES,
    PLUGIN,
    REQUIRED,
    SUPPORT,
    VALIDATION,
    ConnectorFinding,
    Kind,
    Severity,
)
from airflow_eos_provider.preflight.group_facts import ConnectorFacts, Facts, WorkerAnswer

BOUNDARY_PROPERTY = "transaction.boundary"
REQUIRED_LEVEL = "required"
LEVELS = ("requested", REQUIRED_LEVEL)
BOUNDARIES = ("poll", "interval", "connector")

#: How Connect begins where a plugin answers that it does not deliver exactly once, or gives no answer.
_UNSUPPORTED = "The connector does not support exactly-once semantics"
_SILENT = "The connector does not implement the API required for preflight validation"

#: What MirrorSourceConnector says itself; Connect's own words are lost then (``AbstractHerder.generateResult``).
_MIRROR_UNSUPPORTED = "MirrorSourceConnector can only provide exactly-once guarantees when"

_OVERRIDE_PREFIXES = ("producer.override.", "consumer.override.", "admin.override.")

#: What is asked for in the question itself, and no part of the connector's configuration as it is.
_ASKED = (SUPPORT_PROPERTY, BOUNDARY_PROPERTY, OWN_TOPIC)

#: So many messages are quoted.
_QUOTED = 3

_AN_ANSWER = "an answer of each worker"


def plugin(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """Each worker has the plugin."""
    lacking = [answer.worker_id for answer in connector.answers if not answer.has_plugin]
    if lacking:
        yield PLUGIN.failed(
            f"{', '.join(lacking)} {'has' if len(lacking) == 1 else 'have'} no class {connector.plugin}",
            "install the plugin there, and restart the worker",
        )
    elif _answered(connector):
        yield PLUGIN.holds(f"every worker that answers has {connector.plugin}")


def validation(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """The workers accept the configuration as it is."""
    level = _level(connector)
    asked = _ASKED if facts.mode.runs_exactly_once_tasks else ()
    refused = _messages(connector.answers, lambda name: name not in asked and not name.startswith(_OVERRIDE_PREFIXES))
    if level not in LEVELS and not any(references(level)):
        refused = {f"{SUPPORT_PROPERTY}={level} is none of {', '.join(LEVELS)}": [], **refused}
    if not facts.mode.runs_exactly_once_tasks and level == REQUIRED_LEVEL:
        refused = {text: workers for text, workers in refused.items() if NOT_ENABLED.rstrip(".") not in text}
    if refused:
        remedy = "correct it; until then no change of its configuration is accepted"
        yield VALIDATION.failed(_quoted(refused), remedy)
    elif _answered(connector):
        yield VALIDATION.holds("every worker that answers accepts its configuration")
    if silent := _silent_workers(connector):
        yield VALIDATION.unknown(
            "; ".join(f"{answer.worker_id}: {answer.problem}" for answer in silent[:_QUOTED]),
            "check again when the workers answer; a validation may wait for the system that the connector reads",
            expected=_AN_ANSWER,
        )


def overrides(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """The override policy allows what the connector sets of its clients.

    Below ``enabled`` the workers look at overrides of its consumer and its admin client only if it has an offsets topic
    of its own (``connectorUsesSeparateOffsetsTopicClients``), which is why the question names one.
    """
    given = sorted(name for name in connector.config if name.startswith(_OVERRIDE_PREFIXES))
    refused = _messages(connector.answers, lambda name: name.startswith(_OVERRIDE_PREFIXES))
    if refused:
        yield OVERRIDES.failed(
            _quoted(refused),
            "take them out of its configuration, or allow them in the workers' files "
            "(connector.client.config.override.policy, connector.client.config.override.allowlist)",
        )
    elif not given:
        yield OVERRIDES.holds("it overrides no setting of its clients")
    elif _all_answered(connector):
        yield OVERRIDES.holds(f"allowed: {', '.join(given)}")
    else:
        yield _no_answer(connector, OVERRIDES, "whether its overrides are allowed")


def support(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """The connector says that it delivers exactly once."""
    kind = MIRROR if connector.is_mirror_source else SUPPORT
    level = _level(connector)
    is_supplied = any(references(level))
    severity = Severity.BLOCKS if level == REQUIRED_LEVEL or is_supplied else Severity.WARNS
    asked = f"{SUPPORT_PROPERTY}={level}"
    seen = [_support_of(answer) for answer in connector.answers if not answer.problem]
    verdict, found = min(seen, key=lambda one: _ORDER[one[0]], default=(Verdict.PASS, ""))
    if verdict is Verdict.PASS and not _all_answered(connector):
        yield _no_answer(connector, kind, "whether it delivers exactly once", severity)
        return
    if verdict is Verdict.PASS:
        yield kind.holds(f"it answers SUPPORTED ({asked})")
        return
    if verdict is Verdict.INCONCLUSIVE and found == _NOTHING and level == REQUIRED_LEVEL:
        verdict = Verdict.FAIL  # no answer is refused where one is required
    if is_supplied:
        verdict = Verdict.INCONCLUSIVE  # what is asked of it is not known
    remedy = _support_remedy(connector, level, found)
    yield kind.finding(verdict, f"{found} ({asked})", remedy, severity=severity)


def boundary(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """The connector can do what ``transaction.boundary`` asks of it."""
    wanted = connector.config.get(BOUNDARY_PROPERTY, BOUNDARIES[0]).lower()
    if wanted in ("poll", "interval"):
        what = "each batch that it polls" if wanted == "poll" else "an interval"
        yield BOUNDARY.holds(f"{BOUNDARY_PROPERTY}={wanted}: a transaction ends with {what}")
        return
    refused = _messages(connector.answers, lambda name: name == BOUNDARY_PROPERTY)
    if refused or not (wanted in BOUNDARIES or any(references(wanted))):
        found = _quoted(refused) if refused else f"{BOUNDARY_PROPERTY}={wanted} is none of {', '.join(BOUNDARIES)}"
        yield BOUNDARY.failed(found, f"set {BOUNDARY_PROPERTY} to poll or interval")
    elif not _all_answered(connector):
        yield _no_answer(connector, BOUNDARY, f"whether it can keep {BOUNDARY_PROPERTY}={wanted}")
    elif wanted in BOUNDARIES:
        yield BOUNDARY.holds("it ends its transactions itself")
    else:
        yield BOUNDARY.holds(f"every worker accepts what a config provider supplies ({wanted})")


def required_below_enabled(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """A connector that requires exactly-once has it."""
    if _level(connector) == REQUIRED_LEVEL:
        found = f"{SUPPORT_PROPERTY}={REQUIRED_LEVEL}, and in the mode {facts.mode} it has no exactly-once"
        yield REQUIRED.failed(found, f"set {SUPPORT_PROPERTY}=requested, or roll to enabled")


_NOTHING = "it does not answer: its plugin is older than this question (KIP-618), or leaves it to its documentation"
_ORDER = {Verdict.FAIL: 0, Verdict.INCONCLUSIVE: 1, Verdict.PASS: 2}


def _support_of(answer: WorkerAnswer) -> tuple[Verdict, str]:
    """What a plugin says on one worker, by the messages of a validation that requires exactly-once."""
    if SUPPORT_PROPERTY not in answer.properties:
        return Verdict.INCONCLUSIVE, f"{answer.worker_id} does not know {SUPPORT_PROPERTY} (Connect before 3.3)"
    messages = [text for text in answer.errors.get(SUPPORT_PROPERTY, ()) if NOT_ENABLED not in text]
    if any(text.startswith((_UNSUPPORTED, _MIRROR_UNSUPPORTED)) for text in messages):
        return Verdict.FAIL, "it answers UNSUPPORTED"
    if any(text.startswith(_SILENT) for text in messages):
        return Verdict.INCONCLUSIVE, _NOTHING
    if messages:
        return Verdict.INCONCLUSIVE, f"its answer is an error: {messages[0]}"
    return Verdict.PASS, ""


def _support_remedy(connector: ConnectorFacts, level: str, found: str) -> str:
    if connector.is_mirror_source:
        return "set source.consumer.isolation.level=read_committed in its configuration"
    if found == _NOTHING:
        whether = "read in its documentation whether it keeps its position in source offsets alone"
        return f"{whether}; if it does, set {SUPPORT_PROPERTY}=requested" if level == REQUIRED_LEVEL else whether
    if level == REQUIRED_LEVEL:
        return f"correct what its documentation asks for, or set {SUPPORT_PROPERTY}=requested"
    return "correct what its documentation asks for; until then a failure may duplicate records"


def _level(connector: ConnectorFacts) -> str:
    return connector.config.get(SUPPORT_PROPERTY, LEVELS[0]).lower()


def _answered(connector: ConnectorFacts) -> bool:
    return any(not answer.problem for answer in connector.answers)


def _all_answered(connector: ConnectorFacts) -> bool:
    """Whether every worker that has the plugin has answered: what one allows another may refuse."""
    return _answered(connector) and not _silent_workers(connector)


def _silent_workers(connector: ConnectorFacts) -> list[WorkerAnswer]:
    """The answers of those that may have the plugin, and do not say."""
    return [answer for answer in connector.answers if answer.problem and answer.has_plugin]


def _no_answer(connector: ConnectorFacts, kind: Kind, what: str, severity: Severity | None = None) -> ConnectorFinding:
    without = [answer for answer in connector.answers if answer.problem]
    who = f"{', '.join(one.worker_id for one in without)} does not say" if _answered(connector) else "no worker says"
    why = f": {without[0].worker_id}: {without[0].problem}" if without else ""
    return kind.unknown(
        f"{who} {what}{why}", "check again when the workers answer", expected=_AN_ANSWER, severity=severity
    )


def _messages(answers: Iterable[WorkerAnswer], wanted: Callable[[str], bool]) -> Mapping[str, list[str]]:
    """Message -> the workers that say it, of the wanted properties."""
    found: dict[str, list[str]] = {}
    for answer in answers:
        for name, messages in sorted(answer.errors.items()):
            for text in messages if wanted(name) else ():
                found.setdefault(f"{name}: {text.rstrip('.')}", []).append(answer.worker_id)
    return found


def _quoted(messages: Mapping[str, list[str]]) -> str:
    """Some messages with the workers that say them."""
    shown = [f"{text} ({', '.join(workers)})" if workers else text for text, workers in messages.items()]
    more = f"; {len(shown) - _QUOTED} more" if len(shown) > _QUOTED else ""
    return "; ".join(shown[:_QUOTED]) + more
