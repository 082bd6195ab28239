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
from airflow_eos_provider.preflight.facts import (
    BrokerFacts,
    ConnectorFacts,
    Facts,
    Reader,
    WorkerAnswer,
    WorkerFiles,
)
from airflow_eos_provider.preflight.findings import KINDS, STOPS_TASKS, ConnectorFinding, Severity, worst_first
from airflow_eos_provider.preflight.look import of_connector, targets
from airflow_eos_provider.preflight.report import Report
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


# What the workers answer


@pytest.mark.parametrize(
    ("level", "said", "expected"),
    [
        ("requested", "", PASSED),
        ("required", "", PASSED),
        ("requested", UNSUPPORTED, WARNED),
        ("required", UNSUPPORTED, BLOCKED),
        ("requested", SILENT, UNSURE),
        ("required", SILENT, BLOCKED),
        ("requested", "An unexpected error occurred during validation: oops", UNSURE),
        ("required", "An unexpected error occurred during validation: oops", MAY_BLOCK),
        ("required", NOT_ENABLED, PASSED),  # of a worker that is not enabled yet
    ],
)
def test_support_is_the_plugins_answer_weighed_by_what_is_asked_of_it(level: str, said: str, expected: Seen) -> None:
    told = WorkerAnswer(W1, {SUPPORT: (said,)} if said else {}, KNOWN)
    assert weight(facts(source({SUPPORT: level}, told)), "support") == expected


def test_the_worst_answer_of_the_workers_counts_and_no_answer_is_not_a_good_one() -> None:
    worse = WorkerAnswer(W2, {SUPPORT: (UNSUPPORTED,)}, KNOWN)
    assert weight(facts(source({}, answer(), worse)), "support") == WARNED
    silent = source({SUPPORT: "required"}, WorkerAnswer(W1, problem="it did not answer"))
    assert weight(facts(silent), "support") == MAY_BLOCK
    assert weight(facts(source({}, WorkerAnswer(W1, {}, frozenset({"topic"})))), "support") == UNSURE  # before 3.3


def test_a_mirror_source_that_reads_uncommitted_is_told_what_to_set() -> None:
    said = "MirrorSourceConnector can only provide exactly-once guarantees when its source consumer is configured"
    config = {"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector"}
    (one,) = found(facts(source(config, WorkerAnswer(W1, {SUPPORT: (said,)}, KNOWN))), "mirror")
    assert (one.verdict, one.severity) == (Verdict.FAIL, Severity.WARNS)
    assert "source.consumer.isolation.level=read_committed" in one.remedy


def test_a_refused_configuration_is_shown_with_its_workers_and_not_mixed_with_what_only_the_question_asks() -> None:
    both = [
        WorkerAnswer(w, {"file": ("Missing file.",), SUPPORT: (UNSUPPORTED,), "producer.override.x": ("no",)}, KNOWN)
        for w in (W1, W2)
    ]
    (one,) = found(facts(source({}, *both)), "validation")
    assert one.found == f"file: Missing file ({W1}, {W2})"
    assert weight(facts(source({SUPPORT: "maybe"})), "validation") == WARNED
    wrong = answer(transaction_boundary_interval_ms="Value must be at least 0")
    assert weight(facts(source({}, wrong)), "validation") == WARNED
    assert weight(facts(source({}, WorkerAnswer(W1, problem="it did not answer"))), "validation") == UNSURE


def test_an_override_that_the_policy_refuses_blocks_and_without_an_answer_it_is_not_known() -> None:
    config = {"consumer.override.fetch.min.bytes": "1"}
    refused = answer(consumer_override_fetch_min_bytes="The 'None' policy does not allow it")
    assert weight(facts(source(config, refused)), "overrides") == BLOCKED
    assert weight(facts(source(config)), "overrides") == PASSED
    assert weight(facts(source(config, WorkerAnswer(W1, problem="silent"))), "overrides") == MAY_BLOCK
    assert weight(facts(source({}, WorkerAnswer(W1, problem="silent"))), "overrides") == PASSED


def test_a_plugin_that_a_worker_lacks_is_found() -> None:
    lacking = WorkerAnswer(W2, problem="500: Failed to find any class", has_plugin=False)
    (one,) = found(facts(source({}, answer(), lacking)), "plugin")
    assert (one.verdict, one.found) == (Verdict.FAIL, f"{W2} has no class C")


@pytest.mark.parametrize(
    ("boundary", "said", "expected"),
    [
        ("poll", "", PASSED),
        ("interval", "", PASSED),
        ("connector", "", PASSED),
        ("connector", "The connector does not support connector-defined transaction boundaries", BLOCKED),
        ("sometimes", "", BLOCKED),
    ],
)
def test_a_boundary_that_the_connector_cannot_keep_blocks(boundary: str, said: str, expected: Seen) -> None:
    told = answer(transaction_boundary=said) if said else answer()
    assert weight(facts(source({"transaction.boundary": boundary}, told)), "boundary") == expected


def test_what_one_worker_allows_is_not_known_of_one_that_does_not_answer() -> None:
    both = (answer(), WorkerAnswer(W2, problem="it did not answer"))
    override = source({"consumer.override.fetch.min.bytes": "1"}, *both)
    assert weight(facts(override), "overrides") == MAY_BLOCK
    assert f"{W2} does not say whether its overrides are allowed" in found(facts(override), "overrides")[0].found
    assert weight(facts(source({"transaction.boundary": "connector"}, *both)), "boundary") == MAY_BLOCK
    assert weight(facts(source({SUPPORT: "required"}, *both)), "support") == MAY_BLOCK
    assert weight(facts(source({}, *both)), "support") == UNSURE
    lacking = WorkerAnswer(W2, problem="no class", has_plugin=False)
    assert weight(facts(source({SUPPORT: "required"}, answer(), lacking)), "support") == PASSED


def test_what_a_config_provider_supplies_is_neither_refused_nor_passed_by_its_reference() -> None:
    boundary = {"transaction.boundary": "${env:B}"}
    assert weight(facts(source(boundary)), "boundary") == PASSED  # the worker has looked at what it stands for
    assert weight(facts(source(boundary)), "interval") == MAY_BLOCK
    refused = answer(transaction_boundary="The connector does not support connector-defined transaction boundaries")
    assert weight(facts(source(boundary, refused)), "boundary") == BLOCKED
    assert weight(facts(source(boundary, WorkerAnswer(W1, problem="silent"))), "boundary") == MAY_BLOCK
    level = {SUPPORT: "${env:S}"}
    assert weight(facts(source(level)), "validation") == PASSED
    assert weight(facts(source(level)), "support") == PASSED
    unsupported = WorkerAnswer(W1, {SUPPORT: (UNSUPPORTED,)}, KNOWN)
    assert weight(facts(source(level, unsupported)), "support") == MAY_BLOCK


def test_below_enabled_only_a_requirement_that_is_not_met_is_found() -> None:
    refused = WorkerAnswer(W1, {SUPPORT: (NOT_ENABLED,)}, KNOWN)
    of = facts(source({SUPPORT: "required"}, refused), mode=Mode.DISABLED)
    assert weight(of, "required") == WARNED
    assert weight(of, "validation") == PASSED
    assert not found(of, "support")
    assert overall(find(of)) is Verdict.PASS


def test_a_worker_is_asked_as_it_would_answer_when_enabled() -> None:
    config = {"name": "a", SUPPORT: "requested"}
    assert asked(config, Mode.ENABLED) == {"name": "a", SUPPORT: "required", "offsets.storage.topic": "eos-preflight"}
    assert asked({**config, "offsets.storage.topic": "own"}, Mode.ENABLED)["offsets.storage.topic"] == "own"
    assert asked(config, Mode.DISABLED) == config


# Times and sizes


@pytest.mark.parametrize(
    ("timeout", "file", "limit", "expected"),
    [
        (None, {}, 60_000, PASSED),
        (None, {}, 59_999, BLOCKED),
        ("900001", {}, 900_000, BLOCKED),
        ("900000", {}, 900_000, PASSED),
        (None, {"producer.transaction.timeout.ms": "900001"}, 900_000, BLOCKED),
        ("1000", {"producer.transaction.timeout.ms": "900001"}, 900_000, PASSED),  # the connector's wins
        ("${env:T}", {}, 900_000, MAY_BLOCK),
        (None, {}, None, MAY_BLOCK),
        ("soon", {}, 900_000, MAY_BLOCK),
    ],
)
def test_a_timeout_is_compared_with_what_the_brokers_allow(
    timeout: str | None, file: dict[str, str], limit: int | None, expected: Seen
) -> None:
    config = {} if timeout is None else {"producer.override.transaction.timeout.ms": timeout}
    of = facts(source(config), files=WorkerFiles({W1: file}), brokers=BrokerFacts(limit))
    assert weight(of, "timeout") == expected


def test_producers_that_write_elsewhere_are_not_compared_with_these_brokers() -> None:
    assert weight(facts(source(elsewhere="other:9092")), "timeout") == MAY_BLOCK


@pytest.mark.parametrize(
    ("tasks", "limit", "expected"),
    [(1, 89_999, WARNED), (2, 89_999, BLOCKED), (2, 90_000, PASSED), (1, None, UNSURE), (2, None, MAY_BLOCK)],
)
def test_a_fencing_needs_ninety_seconds(tasks: int, limit: int | None, expected: Seen) -> None:
    assert weight(facts(source(tasks=tasks), brokers=BrokerFacts(limit)), "fencing") == expected


def test_a_name_that_no_worker_can_forward_stops_the_tasks_of_a_group_of_several_workers() -> None:
    refused = f"http://{W1} answered GET /connectors/50%25/topics with 400: {NO_WORDS}"
    several = source({}, answer(W1), answer(W2), topics_unknown=refused)
    assert weight(facts(several), "name") == BLOCKED
    assert [finding.kind for finding in Report.of(facts(several)).stopping] == ["name"]
    assert weight(facts(source(topics_unknown=refused)), "name") == PASSED  # the leader fences its own tasks
    assert weight(facts(source({}, answer(W1), answer(W2), topics_unknown="silent")), "name") == PASSED


def test_more_than_ninety_tasks_cannot_be_fenced_in_time() -> None:
    assert weight(facts(source(tasks=91)), "many-tasks") == WARNED
    assert weight(facts(source(tasks=90)), "many-tasks") == PASSED
    assert weight(facts(source({"tasks.max": "91"}, tasks=0)), "many-tasks") == WARNED  # stopped


@pytest.mark.parametrize(
    ("interval", "file", "expected"),
    [
        ("59999", {}, PASSED),
        ("60000", {}, WARNED),
        ("70000", {}, WARNED),
        ("70001", {}, BLOCKED),
        (None, {}, WARNED),  # both are 60 s by default
        (None, {"offset.flush.interval.ms": "5000"}, PASSED),
        (None, {"offset.flush.interval.ms": "${env:F}"}, MAY_BLOCK),
        ("${env:I}", {}, MAY_BLOCK),
        ("soon", {}, MAY_BLOCK),
    ],
)
def test_an_interval_has_to_end_before_the_timeout(interval: str | None, file: dict[str, str], expected: Seen) -> None:
    config = {"transaction.boundary": "interval"}
    if interval is not None:
        config["transaction.boundary.interval.ms"] = interval
    assert weight(facts(source(config), files=WorkerFiles({W1: file})), "interval") == expected


def test_the_size_of_a_transaction_is_told_only_where_it_was_measured() -> None:
    config = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "10000"}
    (one,) = found(facts(source(config)), "transaction-size")
    assert "about 5 records" in one.found
    unmeasured = BrokerFacts(900_000)
    (one,) = found(facts(source(config), brokers=unmeasured), "transaction-size")
    assert (one.verdict, "was not measured" in one.found) == (Verdict.INCONCLUSIVE, True)


def test_a_topic_that_takes_less_than_a_request_is_found() -> None:
    small = BrokerFacts(900_000, "", {"lines": 1_000})
    assert weight(facts(brokers=small), "record-size") == WARNED
    assert weight(facts(source({"producer.override.max.request.size": "1000"}), brokers=small), "record-size") == PASSED
    assert weight(facts(brokers=BrokerFacts(900_000)), "record-size") == UNSURE
    one_of_two = BrokerFacts(900_000, "", {"lines": 2_000_000})
    assert weight(facts(source(topics=("lines", "hidden")), brokers=one_of_two), "record-size") == UNSURE
    assert weight(facts(files=WorkerFiles({}, {W1: "no file"})), "record-size") == UNSURE


# Settings


@pytest.mark.parametrize(
    ("config", "file", "expected"),
    [
        ({"producer.override.acks": "1"}, {}, BLOCKED),
        ({"producer.override.acks": "-1"}, {}, PASSED),
        ({}, {"producer.acks": "1"}, BLOCKED),
        ({"producer.override.retries": "0"}, {}, BLOCKED),
        ({"producer.override.max.in.flight.requests.per.connection": "6"}, {}, BLOCKED),
        ({"producer.override.max.in.flight.requests.per.connection": "5"}, {}, PASSED),
        ({"producer.override.acks": "${env:A}"}, {}, MAY_BLOCK),
    ],
)
def test_what_a_producer_with_transactions_does_not_bear_blocks(
    config: dict[str, str], file: dict[str, str], expected: Seen
) -> None:
    assert weight(facts(source(config), files=WorkerFiles({W1: file})), "producer") == expected


def test_what_a_file_that_is_not_read_may_hold_is_not_known() -> None:
    unread = {"files": WorkerFiles({W1: {}}, {W2: "no file"})}
    for kind in ("producer", "timeout"):
        assert weight(facts(**unread), kind) == MAY_BLOCK
    assert weight(facts(source({"transaction.boundary": "interval"}), **unread), "interval") == WARNED  # by W1's file
    shorter = source({"transaction.boundary": "interval", "transaction.boundary.interval.ms": "5000"})
    assert weight(facts(shorter, **unread), "interval") == MAY_BLOCK
    files = WorkerFiles({W1: {"producer.acks": "all"}, W2: {"producer.acks": "${env:A}"}})
    assert weight(facts(files=files), "producer") == MAY_BLOCK


def test_settings_without_effect_are_told_and_those_that_say_the_same_are_not() -> None:
    config = {
        "producer.override.transactional.id": "mine",
        "producer.override.enable.idempotence": "true",
        "consumer.override.isolation.level": "read_uncommitted",
    }
    of = facts(source(config), files=WorkerFiles({W1: {"offset.flush.timeout.ms": "1"}}))
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


@pytest.mark.parametrize(
    ("config", "file", "expected"),
    [
        ({}, {}, WARNED),
        ({"consumer.override.isolation.level": "read_committed"}, {}, PASSED),
        ({}, {"consumer.isolation.level": "read_committed"}, PASSED),
        (
            {"consumer.override.isolation.level": "read_uncommitted"},
            {"consumer.isolation.level": "read_committed"},
            WARNED,
        ),
    ],
)
def test_how_a_sink_connector_reads_is_known(config: dict[str, str], file: dict[str, str], expected: Seen) -> None:
    assert weight(reads(OF_SINK, config=config, files=WorkerFiles({W1: file})), "readers") == expected


def test_how_a_sink_connector_reads_is_not_known_without_the_workers_files() -> None:
    assert weight(reads(OF_SINK, files=WorkerFiles({}, {W1: "no file"})), "readers") == UNSURE


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
    hidden = source(topics=("lines", "hidden"), unseen=("hidden",))
    assert weight(facts(hidden), "readers") == UNSURE
    assert weight(facts(source(topics_unknown="403")), "readers") == UNSURE


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
    assert weight(facts(source(topics=(), topics_unknown="403")), "topics") == ("inconclusive", "informs")


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
