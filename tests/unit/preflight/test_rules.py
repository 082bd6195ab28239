"""Each rule on values: when it passes, when it fails and how much that weighs, and when it is not known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.other_kafka import ClientAddresses
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.mode_evidence import NOT_ENABLED
from airflow_eos_provider.connect.rest import NO_WORDS, ConnectorStatus
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.preflight.collect_facts import of_connector, targets
from airflow_eos_provider.preflight.findings import KINDS, STOPS_TASKS, ConnectorFinding, Severity, worst_first
from airflow_eos_provider.preflight.group_facts import (
    BrokerFacts,
    ConnectorFacts,
    Facts,
    Reader,
    WorkerAnswer,
    WorkerFiles,
)
from airflow_eos_provider.preflight.preflight_report import Report
from airflow_eos_provider.preflight.worker_answers import asked

W1, W2 = "w1:8083", "w2:8083"
SUPPORT = "exactly.once.support"
KNOWN = frozenset({SUPPORT, "transaction.boundary", "topic"})
UNSUPPORTED = "The connector does not support exactly-once semantics with the provided configuration."
SILENT = "The connector does not implement the API required for preflight validation of exactly-once source support."

Seen = tuple[str, str]
BLOCKED, WARNED, TOLD = ("fail", "blocks"), ("fail", "warns"), ("fail", "informs")
PASSED, UNSURE, MAY_BLOCK = ("pass", "informs"), ("inconclusive", "warns"), ("inconclusive", "blocks")


def answer(worker: str = W1, **errors: str) -> WorkerAnswer:
    said = {name.replace("_", "."): (text,) for name, text in errors.items()}
    return WorkerAnswer(worker, said, KNOWN)


def source(config: dict[str, str] | None = None, *answers: WorkerAnswer, **more: Any) -> ConnectorFacts:
    """A connector about which nothing is to be found, but for what a test changes."""
    values = {"tasks": 1, "running": 1, "topics": ("lines",), **more}
    return ConnectorFacts(
        "a", "source", {"connector.class": "C", **(config or {})}, answers=answers or (answer(),), **values
    )


def facts(connector: ConnectorFacts | None = None, **more: Any) -> Facts:
    brokers = BrokerFacts(900_000, "", {"lines": 1_048_588}, {"lines": 0.5})
    values: dict[str, Any] = {"files": WorkerFiles({W1: {}}), "brokers": brokers, **more}
    return Facts("group", values.pop("mode", Mode.ENABLED), (connector or source(),), **values)


def find(of: Facts) -> tuple[ConnectorFinding, ...]:
    return Report.of(of).findings


def found(of: Facts, kind: str, connector: str = "a") -> list[ConnectorFinding]:
    return [one for one in find(of) if (one.subject, one.kind) == (connector, kind)]


def overall(findings: Iterable[ConnectorFinding], accepted: Iterable[str] = ()) -> Verdict:
    return Report("group", Mode.ENABLED, (), (), tuple(findings), accepted=tuple(accepted)).verdict


def weight(of: Facts, kind: str, connector: str = "a") -> Seen:
    (one,) = found(of, kind, connector)
    return str(one.verdict), str(one.severity)


def test_of_a_connector_with_nothing_to_be_found_every_answer_is_a_pass_or_tells() -> None:
    findings = find(facts())
    assert overall(findings) is Verdict.PASS
    assert {one.kind for one in findings if not one.passed} == {"transaction-size"}


@pytest.mark.parametrize("mode", [Mode.PREPARING, Mode.ENABLED])
@pytest.mark.parametrize(
    ("second", "described", "expected"),
    [
        ("offsets", "", None),
        ("others", "", BLOCKED),
        ("${file:a:b}", "", MAY_BLOCK),
        ("${file:a:b}", "offsets", None),
        ("${file:a:b}", "others", BLOCKED),
    ],
)
def test_all_workers_have_the_same_internal_topics(
    mode: Mode, second: str, described: str, expected: Seen | None
) -> None:
    name = "offset.storage.topic"
    files = WorkerFiles({W1: {name: "offsets"}, W2: {name: second}}, described={name: described} if described else {})
    of = facts(files=files, mode=mode)
    assert [(str(one.verdict), str(one.severity)) for one in found(of, "internal-topics", "")] == (
        [expected] if expected else []
    )


# Each rule, by what it is asked about


TIMEOUT, ACKS = "producer.override.transaction.timeout.ms", "producer.override.acks"
IN_FLIGHT = "producer.override.max.in.flight.requests.per.connection"
BOUNDARY, EVERY = "transaction.boundary", "transaction.boundary.interval.ms"
OOPS = "An unexpected error occurred during validation: oops"
NO_BOUNDARIES = "The connector does not support connector-defined transaction boundaries"
NO_PATH = f"http://{W1} answered GET /connectors/50%25/topics with 400: {NO_WORDS}"
OVERRIDE = {"consumer.override.fetch.min.bytes": "1"}

MUTE = WorkerAnswer(W2, problem="it did not answer")
LACKING = WorkerAnswer(W2, problem="500: Failed to find any class", has_plugin=False)


def says(text: str, worker: str = W1) -> WorkerAnswer:
    """A worker whose plugin says this about exactly-once."""
    return WorkerAnswer(worker, {SUPPORT: (text,)} if text else {}, KNOWN)


def filed(config: dict[str, str] | None = None, **file: str) -> Facts:
    """With these properties in the file of the worker."""
    return facts(source(config), files=WorkerFiles({W1: {name.replace("_", "."): text for name, text in file.items()}}))


def limited(config: dict[str, str] | None, milliseconds: int | None, tasks: int = 1) -> Facts:
    return facts(source(config, tasks=tasks), brokers=BrokerFacts(milliseconds))


def sized(config: dict[str, str] | None = None, *topics: str, **bytes_of: int) -> Facts:
    return facts(source(config, topics=topics or ("lines",)), brokers=BrokerFacts(900_000, "", bytes_of))


def interval(milliseconds: str | None = None, **file: str) -> Facts:
    return filed({BOUNDARY: "interval", **({} if milliseconds is None else {EVERY: milliseconds})}, **file)


def unread(config: dict[str, str] | None = None) -> Facts:
    """One worker's file cannot be read."""
    return facts(source(config), files=WorkerFiles({W1: {}}, {W2: "no file"}))


@pytest.mark.parametrize(
    ("kind", "of", "expected"),
    [
        # support: the plugin's answer, weighed by what is asked of it
        ("support", facts(source({SUPPORT: "requested"}, says(""))), PASSED),
        ("support", facts(source({SUPPORT: "required"}, says(""))), PASSED),
        ("support", facts(source({SUPPORT: "requested"}, says(UNSUPPORTED))), WARNED),
        ("support", facts(source({SUPPORT: "required"}, says(UNSUPPORTED))), BLOCKED),
        ("support", facts(source({SUPPORT: "requested"}, says(SILENT))), UNSURE),
        ("support", facts(source({SUPPORT: "required"}, says(SILENT))), BLOCKED),
        ("support", facts(source({SUPPORT: "requested"}, says(OOPS))), UNSURE),
        ("support", facts(source({SUPPORT: "required"}, says(OOPS))), MAY_BLOCK),
        ("support", facts(source({SUPPORT: "required"}, says(NOT_ENABLED))), PASSED),  # of a worker not enabled yet
        # the worst answer of the workers counts, and no answer is not a good one
        ("support", facts(source({}, answer(), says(UNSUPPORTED, W2))), WARNED),
        ("support", facts(source({SUPPORT: "required"}, MUTE)), MAY_BLOCK),
        ("support", facts(source({SUPPORT: "required"}, answer(), MUTE)), MAY_BLOCK),
        ("support", facts(source({}, answer(), MUTE)), UNSURE),
        ("support", facts(source({SUPPORT: "required"}, answer(), LACKING)), PASSED),
        ("support", facts(source({}, WorkerAnswer(W1, {}, frozenset({"topic"})))), UNSURE),  # before 3.3
        ("support", facts(source({SUPPORT: "${env:S}"})), PASSED),
        ("support", facts(source({SUPPORT: "${env:S}"}, says(UNSUPPORTED))), MAY_BLOCK),
        ("validation", facts(source({SUPPORT: "${env:S}"})), PASSED),
        ("validation", facts(source({SUPPORT: "maybe"})), WARNED),
        ("validation", facts(source({}, answer(transaction_boundary_interval_ms="Value must be at least 0"))), WARNED),
        ("validation", facts(source({}, MUTE)), UNSURE),
        ("overrides", facts(source(OVERRIDE, answer(consumer_override_fetch_min_bytes="not allowed"))), BLOCKED),
        ("overrides", facts(source(OVERRIDE)), PASSED),
        ("overrides", facts(source(OVERRIDE, MUTE)), MAY_BLOCK),
        ("overrides", facts(source(OVERRIDE, answer(), MUTE)), MAY_BLOCK),
        ("overrides", facts(source({}, MUTE)), PASSED),
        # boundary: what a config provider supplies the worker has looked at
        *(
            ("boundary", facts(source({BOUNDARY: each})), PASSED)
            for each in ("poll", "interval", "connector", "${e:B}")
        ),
        ("boundary", facts(source({BOUNDARY: "connector"}, answer(transaction_boundary=NO_BOUNDARIES))), BLOCKED),
        ("boundary", facts(source({BOUNDARY: "${e:B}"}, answer(transaction_boundary=NO_BOUNDARIES))), BLOCKED),
        ("boundary", facts(source({BOUNDARY: "${e:B}"}, MUTE)), MAY_BLOCK),
        ("boundary", facts(source({BOUNDARY: "connector"}, answer(), MUTE)), MAY_BLOCK),
        ("boundary", facts(source({BOUNDARY: "sometimes"})), BLOCKED),
        # timeout: compared with what the brokers allow; the connector's own wins over the file's
        ("timeout", limited({}, 60_000), PASSED),
        ("timeout", limited({}, 59_999), BLOCKED),
        ("timeout", filed({TIMEOUT: "900001"}), BLOCKED),
        ("timeout", filed({TIMEOUT: "900000"}), PASSED),
        ("timeout", filed(producer_transaction_timeout_ms="900001"), BLOCKED),
        ("timeout", filed({TIMEOUT: "1000"}, producer_transaction_timeout_ms="900001"), PASSED),
        ("timeout", filed({TIMEOUT: "${env:T}"}), MAY_BLOCK),
        ("timeout", filed({TIMEOUT: "soon"}), MAY_BLOCK),
        ("timeout", limited({}, None), MAY_BLOCK),
        ("timeout", facts(source(elsewhere="other:9092")), MAY_BLOCK),
        ("timeout", unread(), MAY_BLOCK),
        # fencing asks for ninety seconds
        ("fencing", limited({}, 89_999), WARNED),
        ("fencing", limited({}, 89_999, tasks=2), BLOCKED),
        ("fencing", limited({}, 90_000, tasks=2), PASSED),
        ("fencing", limited({}, None), UNSURE),
        ("fencing", limited({}, None, tasks=2), MAY_BLOCK),
        # a name that no worker can forward; the leader fences its own tasks
        ("name", facts(source({}, answer(W1), answer(W2), topics_unknown=NO_PATH)), BLOCKED),
        ("name", facts(source(topics_unknown=NO_PATH)), PASSED),
        ("name", facts(source({}, answer(W1), answer(W2), topics_unknown="silent")), PASSED),
        ("many-tasks", facts(source(tasks=91)), WARNED),
        ("many-tasks", facts(source(tasks=90)), PASSED),
        ("many-tasks", facts(source({"tasks.max": "91"}, tasks=0)), WARNED),  # stopped
        # interval: has to end before the timeout; both are 60 s by default
        ("interval", interval("59999"), PASSED),
        ("interval", interval("60000"), WARNED),
        ("interval", interval("70000"), WARNED),
        ("interval", interval("70001"), BLOCKED),
        ("interval", interval(), WARNED),
        ("interval", interval(offset_flush_interval_ms="5000"), PASSED),
        ("interval", interval(offset_flush_interval_ms="${env:F}"), MAY_BLOCK),
        ("interval", interval("${env:I}"), MAY_BLOCK),
        ("interval", interval("soon"), MAY_BLOCK),
        ("interval", facts(source({BOUNDARY: "${env:B}"})), MAY_BLOCK),
        ("interval", unread({BOUNDARY: "interval"}), WARNED),  # by W1's file
        ("interval", unread({BOUNDARY: "interval", EVERY: "5000"}), MAY_BLOCK),
        ("record-size", sized(lines=1_000), WARNED),
        ("record-size", sized({"producer.override.max.request.size": "1000"}, lines=1_000), PASSED),
        ("record-size", sized(), UNSURE),
        ("record-size", sized({}, "lines", "hidden", lines=2_000_000), UNSURE),
        ("record-size", facts(files=WorkerFiles({}, {W1: "no file"})), UNSURE),
        # producer: what one with transactions does not bear
        ("producer", filed({ACKS: "1"}), BLOCKED),
        ("producer", filed({ACKS: "-1"}), PASSED),
        ("producer", filed(producer_acks="1"), BLOCKED),
        ("producer", filed({"producer.override.retries": "0"}), BLOCKED),
        ("producer", filed({IN_FLIGHT: "6"}), BLOCKED),
        ("producer", filed({IN_FLIGHT: "5"}), PASSED),
        ("producer", filed({ACKS: "${env:A}"}), MAY_BLOCK),
        ("producer", unread(), MAY_BLOCK),
        (
            "producer",
            facts(files=WorkerFiles({W1: {"producer.acks": "all"}, W2: {"producer.acks": "${env:A}"}})),
            MAY_BLOCK,
        ),
        ("topics", facts(source(topics=(), topics_unknown="403")), ("inconclusive", "informs")),
        ("readers", facts(source(topics=("lines", "hidden"), unseen=("hidden",))), UNSURE),
        ("readers", facts(source(topics_unknown="403")), UNSURE),
    ],
)
def test_a_rule_weighs_what_it_finds(kind: str, of: Facts, expected: Seen) -> None:
    assert weight(of, kind) == expected


def test_who_does_not_say_is_named() -> None:
    (one,) = found(facts(source(OVERRIDE, answer(), MUTE)), "overrides")
    assert f"{W2} does not say whether its overrides are allowed" in one.found


def test_a_mirror_source_that_reads_uncommitted_is_told_what_to_set() -> None:
    said = "MirrorSourceConnector can only provide exactly-once guarantees when its source consumer is configured"
    config = {"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector"}
    (one,) = found(facts(source(config, says(said))), "mirror")
    assert (one.verdict, one.severity) == (Verdict.FAIL, Severity.WARNS)
    assert "source.consumer.isolation.level=read_committed" in one.remedy


def test_a_refused_configuration_is_shown_with_its_workers_and_not_mixed_with_what_only_the_question_asks() -> None:
    both = [
        WorkerAnswer(w, {"file": ("Missing file.",), SUPPORT: (UNSUPPORTED,), "producer.override.x": ("no",)}, KNOWN)
        for w in (W1, W2)
    ]
    (one,) = found(facts(source({}, *both)), "validation")
    assert one.found == f"file: Missing file ({W1}, {W2})"


def test_a_plugin_that_a_worker_lacks_is_found() -> None:
    (one,) = found(facts(source({}, answer(), LACKING)), "plugin")
    assert (one.verdict, one.found) == (Verdict.FAIL, f"{W2} has no class C")


def test_below_enabled_only_a_requirement_that_is_not_met_is_found() -> None:
    of = facts(source({SUPPORT: "required"}, says(NOT_ENABLED)), mode=Mode.DISABLED)
    assert weight(of, "required") == WARNED
    assert weight(of, "validation") == PASSED
    assert not found(of, "support")
    assert overall(find(of)) is Verdict.PASS


def test_a_worker_is_asked_as_it_would_answer_when_enabled() -> None:
    config = {"name": "a", SUPPORT: "requested"}
    assert asked(config, Mode.ENABLED) == {"name": "a", SUPPORT: "required", "offsets.storage.topic": "eos-preflight"}
    assert asked({**config, "offsets.storage.topic": "own"}, Mode.ENABLED)["offsets.storage.topic"] == "own"
    assert asked(config, Mode.DISABLED) == config


def test_a_name_that_no_worker_can_forward_stops_the_tasks_of_a_group_of_several_workers() -> None:
    several = source({}, answer(W1), answer(W2), topics_unknown=NO_PATH)
    assert [finding.kind for finding in Report.of(facts(several)).stopping] == ["name"]


def test_the_size_of_a_transaction_is_told_only_where_it_was_measured() -> None:
    config = {BOUNDARY: "interval", EVERY: "10000"}
    (one,) = found(facts(source(config)), "transaction-size")
    assert "about 5 records" in one.found
    (one,) = found(facts(source(config), brokers=BrokerFacts(900_000)), "transaction-size")
    assert (one.verdict, "was not measured" in one.found) == (Verdict.INCONCLUSIVE, True)


def test_settings_without_effect_are_told_and_those_that_say_the_same_are_not() -> None:
    config = {
        "producer.override.transactional.id": "mine",
        "producer.override.enable.idempotence": "true",
        "consumer.override.isolation.level": "read_uncommitted",
    }
    of = filed(config, offset_flush_timeout_ms="1")
    assert [one.found.partition(" ")[0] for one in found(of, "ignored")] == [
        "producer.override.transactional.id",
        "consumer.override.isolation.level",
    ]
    assert weight(of, "ignored", "") == TOLD


# Readers


def reads(*readers: Reader, **more: Any) -> Facts:
    sink = ConnectorFacts("s", "sink", more.pop("config", {}), answers=(answer(),))
    of = facts(readers=readers, **more)
    return replace(of, connectors=(*of.connectors, sink))


OF_SINK = Reader("connect-s", frozenset({"lines"}), sink="s")
COMMITTED = {"consumer.isolation.level": "read_committed"}


@pytest.mark.parametrize(
    ("config", "files", "expected"),
    [
        ({}, WorkerFiles({W1: {}}), WARNED),
        ({"consumer.override.isolation.level": "read_committed"}, WorkerFiles({W1: {}}), PASSED),
        ({}, WorkerFiles({W1: COMMITTED}), PASSED),
        ({"consumer.override.isolation.level": "read_uncommitted"}, WorkerFiles({W1: COMMITTED}), WARNED),
        ({}, WorkerFiles({}, {W1: "no file"}), UNSURE),
    ],
)
def test_how_a_sink_connector_reads_is_known_by_its_settings(
    config: dict[str, str], files: WorkerFiles, expected: Seen
) -> None:
    assert weight(reads(OF_SINK, config=config, files=files), "readers") == expected


def test_how_another_group_reads_is_not_known_and_its_members_are_named() -> None:
    other = Reader("billing", frozenset({"lines", "more"}), ("billing-1",), ("10.0.0.7",))
    (one,) = found(reads(other), "readers")
    assert (one.verdict, one.severity) == (Verdict.INCONCLUSIVE, Severity.WARNS)
    assert one.found.startswith("group billing reads lines: 1 member, billing-1 on 10.0.0.7;")
    assert found(reads(replace(other, topics=frozenset({"more"}))), "readers")[0].passed


@pytest.mark.parametrize(("group", "stumbles"), [("spark-executor-x", True), ("hudi-ingest", True), ("billing", False)])
def test_readers_that_expect_no_gaps_are_named(group: str, stumbles: bool) -> None:
    assert bool(found(reads(Reader(group, frozenset({"lines"}))), "markers")) is stumbles


def test_that_not_all_groups_are_known_is_said_and_does_not_pass() -> None:
    assert weight(reads(readers_unknown="not authorized"), "readers") == UNSURE
    assert found(replace(facts(), readers=None), "readers") == []  # it was not asked


def test_a_null_in_a_configuration_is_as_if_it_were_not_written_and_topics_that_are_not_shown_are_kept_apart() -> None:
    null: Any = {"connector.class": "C", "transaction.boundary": None, "producer.override.acks": None}
    status = ConnectorStatus("a", "source", "RUNNING", W1, config=null)
    seen = of_connector(status, ((answer(),), ("hidden", "lines"), ""), {"lines"}, ClientAddresses([], "b:9092"))
    assert (seen.topics, seen.unseen) == (("hidden", "lines"), ("hidden",))
    assert weight(facts(seen), "boundary") == weight(facts(seen), "producer") == PASSED


def test_the_topics_of_a_connector_come_from_connect_and_from_what_is_plain() -> None:
    existing = {"lines", "pg.public.t", "pg.public.u", "other"}
    assert targets({"topic": "lines", "topic.prefix": "pg."}, ["seen"], existing) == (
        *("lines", "pg.public.t", "pg.public.u"),
        "seen",
    )
    assert targets({"topic": "absent", "topic.prefix": ""}, [], existing) == ()


# All together


def one(severity: Severity, verdict: Verdict, connector: str = "a", kind: str = "support") -> ConnectorFinding:
    return ConnectorFinding(connector, verdict, "found", kind=kind, severity=severity)


def test_what_blocks_outweighs_what_may_block_and_the_rest_does_not_count() -> None:
    blocks, may_block = (one(Severity.BLOCKS, verdict) for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE))
    rest = [one(Severity.WARNS, verdict) for verdict in Verdict] + [one(Severity.INFORMS, Verdict.FAIL)]
    assert overall([blocks, may_block, *rest]) is Verdict.FAIL
    assert overall([may_block, *rest]) is Verdict.INCONCLUSIVE
    assert overall(rest) is Verdict.PASS
    assert overall([blocks, *rest], ["a/support"]) is Verdict.PASS
    assert worst_first([*rest, may_block, blocks])[:2] == [blocks, may_block]


def test_only_tasks_that_run_can_be_stopped_and_what_is_accepted_does_not() -> None:
    acks = {"producer.override.acks": "1"}
    assert [f.kind for f in Report.of(facts(source(acks))).stopping] == ["producer"]
    assert Report.of(facts(source(acks, running=0))).stopping == ()
    assert Report.of(facts(source(acks)), ["a/producer"]).stopping == ()
    assert Report.of(facts(source({SUPPORT: "required"}, answer(exactly_once_support=UNSUPPORTED)))).stopping == ()


def test_a_document_is_bounded_and_says_what_it_leaves_out() -> None:
    many = {f"producer.override.{name}": "0" for name in ("acks", "retries")}
    report = Report.of(facts(source(many), brokers=BrokerFacts(1)), ["a/none"])
    document = report.to_dict(limit=2)
    assert len(document["findings"]) == 2
    assert document["left_out"] == len(report.open) - 2 > 0
    assert {finding["severity"] for finding in document["findings"]} == {"blocks"}
    assert report.unused == ("a/none",)
    assert report.lines(1)[-1] == f"{len(report.open) - 1} findings more"


def test_each_kind_is_documented_once_and_those_that_stop_tasks_are_kinds() -> None:
    names = [kind.name for kind in KINDS]
    assert len(names) == len(set(names))
    assert set(names) >= STOPS_TASKS
