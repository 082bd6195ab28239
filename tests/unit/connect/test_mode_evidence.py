from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.mode_evidence import (
    NOT_ENABLED,
    SUPPORT_PROPERTY,
    Declared,
    LeaderEvidence,
    ModeVerdict,
    Observed,
    Running,
    WorkerMode,
    declare,
    judge,
    leader_evidence,
    probe,
)
from airflow_eos_provider.errors import ConnectRestError

STARTED = 1_000_000.0
BEFORE, AFTER = STARTED - 60.0, STARTED + 60.0


def says(mode: Mode | None, changed_at: float | None) -> Declared:
    return Declared(mode, f"file says {mode}", changed_at, changed_at)


def runs(log: Mode | None, *, reads_file: bool | None = True, alive: bool | None = True) -> Running:
    return Running(log, f"start-up log says {log}", STARTED if alive else None, alive, reads_file)


def answers(exactly_once: bool | None, leads: LeaderEvidence | None = None) -> Observed:
    return Observed(exactly_once, f"answers {exactly_once}", leads)


NO_LOG = runs(None)
TRANSACTIONAL = LeaderEvidence(True, "leader writes in transactions")
PLAIN = LeaderEvidence(False, "leader writes without transactions")
NOT_REPORTED = LeaderEvidence(None, "leader not reported")
D, P, E = Mode.DISABLED, Mode.PREPARING, Mode.ENABLED
UNKNOWN = None


@pytest.mark.parametrize(
    ("declared", "running", "observed", "verdict", "disagreements"),
    [
        # all layers agree
        pytest.param(says(D, BEFORE), runs(D), answers(False), D, 0, id="disabled"),
        pytest.param(says(P, BEFORE), runs(P), answers(False), P, 0, id="preparing"),
        pytest.param(says(E, BEFORE), runs(E), answers(True), E, 0, id="enabled"),
        pytest.param(says(P, BEFORE), runs(P), answers(False, TRANSACTIONAL), P, 0, id="preparing leader"),
        pytest.param(says(D, BEFORE), runs(D), answers(False, PLAIN), D, 0, id="disabled leader"),
        pytest.param(says(E, BEFORE), runs(E), answers(True, TRANSACTIONAL), E, 0, id="enabled leader"),
        pytest.param(says(D, BEFORE), runs(D), answers(False, NOT_REPORTED), D, 0, id="leader evidence not reported"),
        # a layer is missing and the rest suffice
        pytest.param(says(P, BEFORE), NO_LOG, answers(False), P, 0, id="no log, file read and untouched"),
        pytest.param(says(D, BEFORE), NO_LOG, answers(None), D, 0, id="no log, no answer, file read and untouched"),
        pytest.param(says(P, AFTER), runs(P), answers(None), P, 0, id="touched file, no answer, log tells"),
        pytest.param(says(None, None), runs(P), answers(False), P, 0, id="file unreadable, log tells"),
        pytest.param(says(None, None), NO_LOG, answers(True), E, 0, id="only its own answer: enabled"),
        pytest.param(says(None, None), NO_LOG, answers(False, TRANSACTIONAL), P, 0, id="answer and leader: preparing"),
        pytest.param(says(None, None), NO_LOG, answers(False, PLAIN), D, 0, id="answer and leader: disabled"),
        pytest.param(says(E, AFTER), runs(None, alive=None), answers(True), E, 0, id="no process, but an answer"),
        # layers do not suffice
        pytest.param(says(None, None), NO_LOG, answers(False), UNKNOWN, 0, id="not enabled is two modes"),
        pytest.param(says(None, None), NO_LOG, answers(False, NOT_REPORTED), UNKNOWN, 0, id="nor does the leader tell"),
        pytest.param(says(None, None), NO_LOG, answers(None), UNKNOWN, 0, id="nothing at all"),
        pytest.param(says(D, AFTER), NO_LOG, answers(False), UNKNOWN, 0, id="file touched since, no log"),
        pytest.param(says(D, STARTED), NO_LOG, answers(False), UNKNOWN, 0, id="file touched in the same moment"),
        pytest.param(says(D, BEFORE), runs(None, reads_file=False), answers(False), UNKNOWN, 0, id="another file"),
        pytest.param(says(D, BEFORE), runs(None, reads_file=None), answers(False), UNKNOWN, 0, id="some file"),
        pytest.param(says(D, BEFORE), runs(None, alive=None), answers(False), UNKNOWN, 0, id="process unknown"),
        # layers contradict each other
        pytest.param(says(P, BEFORE), runs(P), answers(True), UNKNOWN, 2, id="preparing, yet answers enabled"),
        pytest.param(says(E, BEFORE), runs(E), answers(False), UNKNOWN, 2, id="enabled, yet answers not"),
        pytest.param(says(E, BEFORE), runs(P), answers(False), UNKNOWN, 2, id="untouched file, other log"),
        pytest.param(says(D, AFTER), runs(D), answers(False, TRANSACTIONAL), UNKNOWN, 1, id="disabled, transactional"),
        pytest.param(says(P, AFTER), runs(P), answers(False, PLAIN), UNKNOWN, 1, id="preparing, not transactional"),
        pytest.param(says(E, AFTER), runs(None), answers(True, PLAIN), UNKNOWN, 1, id="enabled, not transactional"),
        # the file is newer than the process: named, but the process is judged by what it proves
        pytest.param(says(E, AFTER), runs(P), answers(False), P, 1, id="newer file says enabled"),
        pytest.param(says(P, AFTER), runs(D), answers(False), D, 1, id="newer file says preparing"),
        pytest.param(says(D, AFTER), runs(E), answers(True), E, 1, id="newer file says disabled"),
        pytest.param(says(P, AFTER), NO_LOG, answers(True), E, 1, id="newer file, no log, but its own answer"),
        pytest.param(says(P, AFTER), runs(P), answers(False), P, 0, id="newer file says the same"),
        pytest.param(says(D, BEFORE), runs(P, reads_file=False), answers(False), P, 1, id="started with another file"),
        pytest.param(says(None, AFTER), runs(P), answers(False), P, 1, id="newer file says nonsense"),
    ],
)  # fmt: skip
def test_the_verdict_is_what_all_evidence_allows(
    declared: Declared, running: Running, observed: Observed, verdict: Mode | None, disagreements: int
) -> None:
    judged = judge("w:1", declared, running, observed)
    assert judged.verdict.mode is verdict
    assert len(judged.disagreements) == disagreements, judged.disagreements
    assert judged.reason


def test_no_evidence_is_ever_outvoted() -> None:
    """Whatever the combination: a verdict never contradicts the log, the worker's answer or the leader's writes."""
    proven = 0
    for log in (None, *Mode):
        for file in (None, *Mode):
            for changed_at in (BEFORE, AFTER):
                for exactly_once in (None, True, False):
                    for leads in (None, NOT_REPORTED, TRANSACTIONAL, PLAIN):
                        mode = judge(
                            "w:1", says(file, changed_at), runs(log), answers(exactly_once, leads)
                        ).verdict.mode
                        if mode is None:
                            continue
                        proven += 1
                        assert log in (None, mode)
                        assert exactly_once in (None, mode.runs_exactly_once_tasks)
                        assert leads is None or leads.transactional in (None, mode.uses_transactional_leader)
                        assert changed_at == AFTER or file in (None, mode)
    assert proven > 50


def test_a_file_newer_than_its_process_is_named_in_words() -> None:
    judged = judge("w:1", says(E, AFTER), runs(P), answers(False))
    (sentence,) = judged.disagreements
    assert "the file says enabled since" in sentence
    assert "started before that" in sentence
    assert "runs preparing: a restart will change the mode" in sentence
    assert judged.declared.mode is E


def test_a_file_that_kept_its_date_is_not_said_to_be_so_since_then() -> None:
    declared = Declared(E, "file says enabled", BEFORE, AFTER)
    (sentence,) = judge("w:1", declared, runs(D), answers(False)).disagreements
    assert "since" not in sentence
    assert "the file says enabled (dated " in sentence
    assert "started before that" in sentence


HOUR = 3_600.0


@pytest.mark.parametrize(
    ("modified", "changed", "declared"),
    [
        (-60.0, -30.0, (-60.0, -30.0)),
        (-30.0, -60.0, (-30.0, -30.0)),  # its date is later than its change: the later of the two counts
        (HOUR, -60.0, (None, -60.0)),  # a date that a tool has set
        (HOUR, HOUR, (None, None)),  # the clock was set back since
        (-60.0, HOUR, (-60.0, None)),
        (2.0, 2.0, (2.0, 2.0)),  # clocks of two machines are known to within some seconds
    ],
)
def test_a_time_that_is_yet_to_come_proves_nothing(
    modified: float, changed: float, declared: tuple[float | None, float | None]
) -> None:
    now = time.time()
    found = declare({MODE_PROPERTY: "enabled"}, modified_at=now + modified, changed_at=now + changed)
    shifted = tuple(None if at is None else now + at for at in declared)
    assert (found.modified_at, found.changed_at) == shifted


def test_a_contradiction_names_both_sides() -> None:
    judged = judge("w:1", says(D, AFTER), runs(P), answers(True))
    assert judged.verdict is ModeVerdict.UNKNOWN
    assert "start-up log says preparing, but answers True" in judged.reason


def test_a_stopped_worker_is_unknown_and_says_how_it_will_join() -> None:
    judged = judge("w:1", says(P, BEFORE), runs(None, alive=False), answers(None))
    assert judged.verdict is ModeVerdict.UNKNOWN
    assert judged.reason.startswith("stopped; will join as preparing")
    assert judged.declared.mode is P
    assert judged.disagreements == ()


def test_a_stopped_worker_that_answers_is_a_disagreement() -> None:
    judged = judge("w:1", says(P, BEFORE), runs(None, alive=False), answers(False))
    assert judged.verdict is ModeVerdict.UNKNOWN
    assert "its address answers" in judged.disagreements[0]


def test_unknown_is_no_mode() -> None:
    assert ModeVerdict.UNKNOWN.mode is None
    assert {ModeVerdict(mode.value).mode for mode in Mode} == set(Mode)


def by_provider(value: str, provider: str, provider_class: str, **parameters: str) -> dict[str, str]:
    return {
        MODE_PROPERTY: value,
        "config.providers": provider,
        f"config.providers.{provider}.class": f"org.apache.kafka.common.config.provider.{provider_class}",
        **{f"config.providers.{provider}.param.{name.replace('_', '.')}": text for name, text in parameters.items()},
    }


ENV = "EnvVarConfigProvider"


@pytest.mark.parametrize(
    ("properties", "mode", "words"),
    [
        ({}, D, "not set, so disabled"),
        ({MODE_PROPERTY: " Preparing "}, P, "Preparing"),
        ({MODE_PROPERTY: "on"}, None, "would not start"),
        ({MODE_PROPERTY: "${env:MODE}"}, None, "cannot be followed"),
        (by_provider("${env:MODE}", "env", ENV), E, "now enabled"),
        (by_provider("${my:MODE}", "my", ENV), E, "now enabled"),
        (by_provider("${env:OTHER}", "env", ENV), None, "cannot be followed"),
        (by_provider("${env:MODE}x", "env", ENV), None, "cannot be followed"),
        (by_provider("${env:MODE}", "env", ENV, allowlist_pattern="X_.*"), None, "cannot be followed"),
        (by_provider("${file:/a:b}", "file", "FileConfigProvider"), None, "cannot be followed"),
    ],
)
def test_the_declared_mode_is_read_from_the_properties(
    properties: dict[str, str], mode: Mode | None, words: str
) -> None:
    declared = declare(properties, variable={"MODE": "enabled", "SECRET": "canary"}.get)
    assert declared.mode is mode
    assert words in declared.detail


@dataclass
class Validation:
    errors: dict[str, tuple[str, ...]]


@dataclass
class Worker:
    """Stands in for a worker's REST API: no real worker is too old, or without passive plugins, at will."""

    required: tuple[str, ...] = ()
    nonsense: tuple[str, ...] = ("Invalid value",)
    classes: tuple[str, ...] = ("org.apache.kafka.connect.file.FileStreamSourceConnector", "x.Sink")
    fails: bool = False
    asked: list[str] = field(default_factory=list)

    def plugins(self) -> tuple[str, ...]:
        return self.classes

    def validate(self, plugin_class: str, config: dict[str, str]) -> Validation:
        if self.fails:
            raise ConnectRestError("500: it broke")
        self.asked.append(plugin_class)
        errors = self.required if config[SUPPORT_PROPERTY] == "required" else self.nonsense
        return Validation({SUPPORT_PROPERTY: errors} if errors else {"topic": ("Missing",)})


@pytest.mark.parametrize(
    ("worker", "exactly_once", "words"),
    [
        (Worker(required=(NOT_ENABLED,)), False, "not enabled"),
        (Worker(required=(NOT_ENABLED, "The connector does not support it")), False, "not enabled"),
        (Worker(required=("The connector does not support exactly-once",)), True, "runs exactly-once"),
        (Worker(), True, "runs exactly-once"),
        (Worker(nonsense=()), None, "does not validate"),
        (Worker(classes=("com.example.JdbcSource",)), None, "no plugin"),
        (Worker(fails=True), None, "500: it broke"),
    ],
)
def test_the_worker_is_asked_in_its_own_words(worker: Any, exactly_once: bool | None, words: str) -> None:
    observed = probe(worker)
    assert observed.runs_exactly_once is exactly_once
    assert words in observed.detail


def test_only_plugins_that_touch_no_other_system_are_validated() -> None:
    worker = Worker(
        classes=("com.example.JdbcSource", "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector"),
        required=(NOT_ENABLED,),
    )
    probe(worker)  # type: ignore[arg-type]
    assert worker.asked == ["org.apache.kafka.connect.mirror.MirrorHeartbeatConnector"]


@dataclass
class Described:
    producer_id: int


@dataclass
class Producer:
    producer_id: int
    last_timestamp_ms: int


class Broker:
    """Stands in for the broker's memory of transactions, which cannot be aged by days."""

    def __init__(self, described: Described | None, *producers: Producer) -> None:
        self._described, self._producers = described, producers

    def describe(self, ids: list[str]) -> dict[str, Described]:
        assert ids == ["connect-cluster-g"]
        return {ids[0]: self._described} if self._described else {}

    def active_producers(self, topic: str) -> tuple[Producer, ...]:
        assert topic == "configs"
        return self._producers


NOW = time.time()
WRITES_NOW = Producer(7, int((NOW - 10) * 1000))


@pytest.mark.parametrize(
    ("transactions", "started_at", "transactional"),
    [
        pytest.param(Broker(None), NOW - 60, False, id="never was an id"),
        pytest.param(Broker(None), NOW - 8 * 24 * 3600, None, id="an id may have expired"),
        pytest.param(Broker(None), None, None, id="unknown since when"),
        pytest.param(Broker(Described(7), WRITES_NOW), NOW - 60, True, id="written since"),
        pytest.param(Broker(Described(7), WRITES_NOW), NOW - 5, None, id="written before: the id lingers"),
        pytest.param(Broker(Described(7), WRITES_NOW), None, None, id="written, start unknown"),
        pytest.param(Broker(Described(8), WRITES_NOW), NOW - 60, None, id="another producer wrote"),
        pytest.param(Broker(Described(7)), NOW - 60, None, id="an id that has not written"),
    ],
)
def test_the_leaders_writes_prove_the_present_only_after_the_members_started(
    transactions: Any, started_at: float | None, transactional: bool | None
) -> None:
    assert leader_evidence(transactions, "g", "configs", started_at).transactional is transactional


def test_the_evidence_never_shows_other_variables() -> None:
    properties = {**by_provider("${env:MODE}", "env", ENV), "ssl.key.password": "canary"}
    judged: WorkerMode = judge(
        "w:1", declare(properties, variable={"MODE": "enabled", "PASSWORD": "canary"}.get), NO_LOG, answers(True)
    )
    assert "enabled" in repr(judged)
    assert "canary" not in repr(judged)
