"""``eos intervals`` beside runs that are complete, under way and given up, on a real broker."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from airflow_eos_provider.changes.change import Plan
from airflow_eos_provider.changes.engine import carry_out
from airflow_eos_provider.changes.uninstall import remove as removal
from airflow_eos_provider.changes.uninstall.change import UNINSTALL, UninstallRequest
from airflow_eos_provider.cli.app import app
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.errors import (
    ConfigurationError,
    EosError,
    FencedError,
    LeaseHeldError,
    NothingDoneError,
    PlanMovedError,
    RefusedError,
)
from airflow_eos_provider.interval.group_pipelines import pipelines_on_record
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.messages import Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol.coordinator import Coordinator
from airflow_eos_provider.interval.protocol.task import Task
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.topics import run_reader
from airflow_eos_provider.interval.verify import completion, ledger, statuses
from airflow_eos_provider.interval.write.tally import Tally
from airflow_eos_provider.journal.group_change import group_change
from airflow_eos_provider.journal.journal import Journal, RolloutState
from airflow_eos_provider.journal.name import journal_topic
from airflow_eos_provider.journal.records import ChangeRecord
from airflow_eos_provider.kafka.read.reader import scan_to_end
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.lab.lab import Lab
from tests.broker_only import describe
from tests.system.modes import close_what_is_open
from tests.waiting import until_ended

GROUP = "intervals-test"
SLICES = 3
ROWS = 5


@pytest.fixture(scope="module")
def lab(broker_lab: Lab) -> Lab:
    return describe(broker_lab)


@pytest.fixture
def make_pipeline(lab: Lab) -> Callable[[str], Pipeline]:
    def make(name: str) -> Pipeline:
        lab.create_topic(f"topic-of-{name}", 2)
        return Pipeline(
            name=name, group_id=GROUP, kafka=lab.cluster().kafka, topic=f"topic-of-{name}", run_header="eos-run"
        )

    return make


def day(number: int) -> Interval:
    return Interval.parse(f"2013-01-{number:02d}T00:00:00Z/2013-01-{number + 1:02d}T00:00:00Z")


def rows(run: Run, number: int) -> list[pa.RecordBatch]:
    values = [f"{run.name} {number} {row}".encode() for row in range(ROWS)]
    return [pa.RecordBatch.from_pydict({"key": pa.array(values), "value": pa.array(values)})]


def write(
    pipeline: Pipeline, run: Run, *, only: int = SLICES, on_step: Callable[[str], None] = lambda step: None
) -> None:
    """Write a run's slices, or only the first few and then stop."""
    with Coordinator(pipeline, run, began_at=time.time(), on_step=on_step) as coordinator:
        stage = coordinator.begin(lambda: RunPlan(run, [{"part": n} for n in range(SLICES)], {"kind": "test"}), 1)
        assert isinstance(stage, Stage)
        stage = coordinator.compare_input(
            stage, lambda done: {number: Tally(pipeline, run).take(rows(run, number)) for number in done}
        )
        with Task(pipeline, stage, 0) as task:
            for number in sorted(task.start())[:only]:
                task.write_slice(number, rows(run, number))
        if only == SLICES:
            coordinator.finish(stage)
    until_ended(pipeline.kafka, pipeline.task_id_prefix(run))


def eos(lab: Lab, *arguments: str, code: int = 0, group: str = GROUP) -> Any:
    result = CliRunner().invoke(app, ["intervals", *arguments, "--cluster", str(lab.cluster_file), "--group", group])
    if isinstance(result.exception, EosError):
        raise result.exception
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if "--json" in arguments else result.stdout


def test_a_group_without_pipelines_is_listed_as_such(lab: Lab) -> None:
    assert "The group nobodys has no pipelines" in eos(lab, "list", group="nobodys")


def test_complete_and_running_runs_are_listed_and_shown(lab: Lab, make_pipeline: Callable[[str], Pipeline]) -> None:
    pipeline = make_pipeline("listed")
    write(pipeline, Run("listed", day(1)))
    write(pipeline, Run("listed", day(2)), only=1)

    first, second = (run for run in eos(lab, "list", "--json")["runs"] if run["run"].startswith("listed@"))
    assert (first["state"], first["records"], first["slices"]) == ("complete", SLICES * ROWS, SLICES)
    assert (second["state"], second["records"], second["missing"]) == ("running", ROWS, [1, 2])
    assert second["source"] == {"kind": "test"}

    assert "complete" in eos(lab, "list", "--pipeline", "listed")
    assert "1 of 3 slices committed" in eos(lab, "show", f"listed@{day(2).name}")
    assert eos(lab, "show", day(1).name, "--pipeline", "listed", "--json")["digest"] == first["digest"]


def test_a_list_reads_the_control_topic_and_each_ledger_once(
    lab: Lab, make_pipeline: Callable[[str], Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipelines = [make_pipeline(f"one-of-{number}") for number in range(3)]
    for pipeline in pipelines:
        write(pipeline, Run(pipeline.name, day(1)))
    read = list[str]()

    def counted(kafka: Any, topic: str, *arguments: Any, **named: Any) -> Any:
        read.append(topic)
        return scan_to_end(kafka, topic, *arguments, **named)

    monkeypatch.setattr(run_reader, "scan_to_end", counted)
    listed = eos(lab, "list", "--json")

    assert {f"{GROUP}-configs", *(pipeline.ledger_topic for pipeline in pipelines)} <= set(read)
    assert len(read) == len(set(read))
    assert {run["run"] for run in listed["runs"]} >= {Run(pipeline.name, day(1)).name for pipeline in pipelines}
    assert list(dict.fromkeys(run["run"].partition("@")[0] for run in listed["runs"])) == listed["pipelines"]


def test_what_a_run_moved_and_how_long_it_took_is_shown(lab: Lab, make_pipeline: Callable[[str], Pipeline]) -> None:
    pipeline = make_pipeline("measured")
    complete, running = Run("measured", day(1)), Run("measured", day(2))
    write(pipeline, complete)
    write(pipeline, running, only=1)

    summary = eos(lab, "show", complete.name, "--json")["summary"]
    size = sum(len(row) for number in range(SLICES) for row in rows(complete, number)[0].column(0).to_pylist()) * 2
    assert (summary["transactions"], summary["bytes"]) == (SLICES, size)
    assert summary["transaction_records"] == [ROWS, ROWS, ROWS]
    assert summary["attempts_fenced"] == 0
    assert {"begin", "fence", "stage", "read", "produce", "flush", "read_back"} <= set(summary["seconds"])
    assert f"{SLICES} transactions, {size:,} bytes" in eos(lab, "show", complete.name, "-o", "wide")
    assert "transactions" not in eos(lab, "show", complete.name)

    (slice_,) = eos(lab, "show", running.name, "--json")["committed"]
    assert (slice_["slice"], slice_["records"], slice_["task"], slice_["attempt"]) == (0, ROWS, 0, 0)
    assert set(slice_["seconds"]) == {"read", "produce", "flush"}
    assert "Committed slices" in eos(lab, "show", running.name, "-o", "wide")


def test_pipelines_are_on_record_with_the_topics_that_they_write(
    lab: Lab, make_pipeline: Callable[[str], Pipeline]
) -> None:
    """By which a revocation for one of them knows what the others need."""
    group = "on-record"
    assert pipelines_on_record(lab.cluster().kafka, group) == []
    for name, only in (("done", SLICES), ("open", 1)):
        pipeline = replace(make_pipeline(name), group_id=group, ledger_topic="", control_topic="")
        write(pipeline, Run(name, day(1)), only=only)
    lab.create_topic(f"{group}-bare-offsets", 1)
    lab.create_topic(f"{group}-offsets", 1)  # as a Connect group has it: no pipeline's ledger
    bare, done, open_ = sorted(pipelines_on_record(lab.cluster().kafka, group), key=lambda each: each.name)
    assert (done.name, done.topics, done.writes_elsewhere) == ("done", ("topic-of-done",), False)
    assert (open_.name, open_.topics, open_.writes_elsewhere) == ("open", ("topic-of-open",), False)
    assert (bare.name, bare.topics, bare.writes_elsewhere) == ("bare", (), True)
    assert done.ledger_topic == f"{group}-done-offsets"


def test_a_run_that_nobody_knows_is_an_error(lab: Lab, make_pipeline: Callable[[str], Pipeline]) -> None:
    make_pipeline("empty")
    with pytest.raises(ConfigurationError, match="Nothing of empty@"):
        eos(lab, "show", f"empty@{day(1).name}")


def test_an_interval_within_a_complete_one_is_complete_and_has_no_record_of_its_own(
    lab: Lab, make_pipeline: Callable[[str], Pipeline]
) -> None:
    pipeline = make_pipeline("wide")
    whole = Run("wide", Interval(day(1).start, day(9).end))
    part = Run("wide", day(3))
    write(pipeline, whole)

    done = completion(pipeline, part)
    assert done is not None
    assert done.run == whole
    assert completion(pipeline, Run("wide", day(10))) is None
    for verb in (("show",), ("abandon", "--yes"), ("verify", "--topic", "topic-of-wide", "--header", "eos-run")):
        with pytest.raises(ConfigurationError, match=f"was written as a part of {whole.name}"):
            eos(lab, verb[0], part.name, *verb[1:])
    assert eos(lab, "show", whole.name, "--json")["ended"] is True


def test_nothing_is_a_part_of_an_interval_that_has_not_ended(
    lab: Lab, make_pipeline: Callable[[str], Pipeline]
) -> None:
    """Records of a part may be to come: it would count as complete without them."""
    pipeline = make_pipeline("future")
    whole = Run("future", Interval.parse("2013-01-01T00:00:00Z/2113-01-01T00:00:00Z"))
    write(pipeline, whole)

    assert completion(pipeline, Run("future", day(3))) is None
    assert eos(lab, "show", whole.name, "--json")["ended"] is False
    with pytest.raises(RefusedError, match=f"overlaps {whole.name}, which is complete"):
        write(pipeline, Run("future", day(3)))


def test_what_was_begun_before_the_end_had_not_ended(
    make_pipeline: Callable[[str], Pipeline],
) -> None:
    """A stage may end long after it has read its input."""
    pipeline = make_pipeline("begun-early")
    run = Run("begun-early", day(1))
    with Coordinator(pipeline, run) as coordinator:
        begun = coordinator.begin(lambda: RunPlan(run, [{"part": 0}]), 1)
        assert isinstance(begun, Stage)
        stage = replace(begun, began_at=run.interval.end.timestamp() - 1)
        with Task(pipeline, stage, 0) as task:
            task.start()
            task.write_slice(0, rows(run, 0))
        coordinator.finish(stage)

    found = ledger(pipeline, wait=True).completed(run)
    assert found is not None
    assert found.ended is False


def test_completion_is_told_where_there_is_no_ledger_yet(make_pipeline: Callable[[str], Pipeline]) -> None:
    pipeline = make_pipeline("unborn")
    run = Run("unborn", day(1))
    assert completion(pipeline, run) is None
    assert statuses(pipeline) == []
    write(pipeline, run)
    done = completion(pipeline, run)
    assert done is not None
    assert (done.records, done.already) == (SLICES * ROWS, True)


def test_a_complete_behind_an_open_transaction_is_waited_for_if_asked_to(
    make_pipeline: Callable[[str], Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make_pipeline("held-up")
    run = Run("held-up", day(1))
    settings = {"bootstrap.servers": pipeline.kafka.bootstrap_servers, "transactional.id": "another-interval"}
    other = Producer({**settings, "transaction.timeout.ms": 600_000})
    other.init_transactions(180)

    def open_transaction(step: str) -> None:
        if step == "write complete":  # behind this run's last read, before its `complete`
            other.begin_transaction()
            for partition in range(pipeline.ledger_partitions):
                other.produce(pipeline.ledger_topic, b"another", b"interval", partition=partition)
            assert other.flush(180) == 0

    write(pipeline, run, on_step=open_transaction)
    assert completion(pipeline, run) is None
    stable = run_reader.TopicReader(pipeline.kafka, pipeline.ledger_topic)
    stable.read_stable(lambda records: None)
    at_the_stable_end = threading.Event()

    def progress(passed: int, of: int) -> None:
        if passed == sum(stable.positions.values()) < of:
            at_the_stable_end.set()

    monkeypatch.setattr(run_reader, "scan_to_end", partial(scan_to_end, progress=progress))
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(completion, pipeline, run, wait=True)
        # All that is stable has passed its reader: one that took this for the end would find no `complete`, as above.
        assert at_the_stable_end.wait(180)
        other.commit_transaction(180)
        assert waiting.result(timeout=180) is not None


def test_verify_finds_what_was_promised_and_notices_a_record_too_many(
    lab: Lab, make_pipeline: Callable[[str], Pipeline]
) -> None:
    pipeline = make_pipeline("verified")
    first, second = Run("verified", day(1)), Run("verified", day(2))
    write(pipeline, first)
    write(pipeline, second)
    topic = ("--topic", "topic-of-verified")
    by_header = ("verify", first.name, *topic, "--header", "eos-run", "--json")
    everything = ("verify", "--pipeline", "verified", *topic, "--json")
    assert eos(lab, *by_header)["found"]["records"] == SLICES * ROWS
    assert eos(lab, *everything)["found"]["records"] == 2 * SLICES * ROWS

    producer = Producer({"bootstrap.servers": lab.bootstrap_servers})
    again = f"{first.name} 0 0".encode()  # the very bytes of one that is there
    producer.produce("topic-of-verified", key=again, value=again, headers=[("eos-run", first.name.encode())])
    assert producer.flush(180) == 0
    found = eos(lab, *by_header, code=1)
    assert found["holds"] is False
    assert found["found"]["records"] == SLICES * ROWS + 1
    assert eos(lab, *everything, code=1)["holds"] is False
    assert eos(lab, "verify", second.name, *topic, "--header", "eos-run", "--json")["holds"] is True


def test_verify_compares_with_the_source_where_it_is_at_hand(
    lab: Lab, make_pipeline: Callable[[str], Pipeline], tmp_path: Path
) -> None:
    pipeline = make_pipeline("sourced")
    run = Run("sourced", day(1))
    write(pipeline, run)
    lines = [f"{run.name} {number} {row}" for number in range(SLICES) for row in range(ROWS)]
    source = tmp_path / "lines.gz"  # and lines that end as on Windows, as files_source reads them, too
    arguments = ("verify", "--pipeline", "sourced", "--topic", "topic-of-sourced", "--source", str(source), "--json")
    source.write_bytes(gzip.compress("\r\n".join(reversed(lines)).encode()))
    assert eos(lab, *arguments)["source"] == {"records": len(lines), "agrees": True}
    source.write_bytes(
        gzip.compress("\n".join([*lines[1:], lines[1]]).encode())
    )  # as many, but one twice for one that is missing
    assert eos(lab, *arguments, code=1)["source"] == {"records": len(lines), "agrees": False}


def test_verify_refuses_what_it_could_not_tell(lab: Lab, make_pipeline: Callable[[str], Pipeline]) -> None:
    pipeline = make_pipeline("unclear")
    run = Run("unclear", day(1))
    write(pipeline, run, only=1)
    topic = ("--topic", "topic-of-unclear")
    with pytest.raises(ConfigurationError, match="is not complete"):
        eos(lab, "verify", run.name, *topic, "--header", "eos-run")
    with pytest.raises(ConfigurationError, match="cannot be distinguished from others"):
        eos(lab, "verify", run.name, *topic)
    with pytest.raises(ConfigurationError, match="runs of unclear are not complete"):
        eos(lab, "verify", "--pipeline", "unclear", *topic)


def test_abandon_changes_nothing_unless_told_to_and_frees_the_interval(
    lab: Lab, make_pipeline: Callable[[str], Pipeline]
) -> None:
    pipeline = make_pipeline("given-up")
    run = Run("given-up", day(1))
    write(pipeline, run, only=0)
    with pytest.raises(NothingDoneError, match="Pass --yes or --plan HASH"):
        eos(lab, "abandon", run.name)
    assert [status.run for status in statuses(pipeline)] == [run]
    assert eos(lab, "abandon", run.name, "--yes", "--json")["report"] == {"run": run.name, "abandoned": True}
    until_ended(pipeline.kafka, pipeline.task_id_prefix(run))
    assert statuses(pipeline) == []
    overlapping = Interval.parse("2013-01-01T12:00:00Z/2013-01-02T12:00:00Z")
    write(pipeline, Run("given-up", overlapping))


def test_abandon_is_refused_once_a_slice_is_committed(lab: Lab, make_pipeline: Callable[[str], Pipeline]) -> None:
    pipeline = make_pipeline("begun")
    run = Run("begun", day(1))
    write(pipeline, run, only=1)
    with pytest.raises(RefusedError, match="has 1 of 3 slices committed; it cannot be given up"):
        eos(lab, "abandon", run.name, "--yes")
    with Coordinator(pipeline, run) as coordinator, pytest.raises(RefusedError, match="are committed"):
        coordinator.abandon()
    write(pipeline, run)  # goes on as if nothing had been asked


def test_abandon_fences_whoever_still_works_on_the_run(lab: Lab, make_pipeline: Callable[[str], Pipeline]) -> None:
    pipeline = make_pipeline("worked-on")
    run = Run("worked-on", day(1))
    with Coordinator(pipeline, run) as coordinator:
        stage = coordinator.begin(lambda: RunPlan(run, [{}], {}), 1)
        assert isinstance(stage, Stage)
        eos(lab, "abandon", run.name, "--yes")
        with Task(pipeline, stage, 0) as late, pytest.raises(FencedError):
            late.start()
        with pytest.raises(EosError):
            coordinator.finish(stage)


def test_ledgers_are_removed_on_request_only_and_not_while_a_run_is_under_way(lab: Lab) -> None:
    """In a group of its own, beside a topic of the same form that a connector may have as its own."""
    group = "uninstalled"
    other = f"{group}-connector-offsets"
    for topic in ("topic-of-uninstalled", other):
        lab.create_topic(topic)
    pipeline = Pipeline(name="p", group_id=group, kafka=lab.cluster().kafka, topic="topic-of-uninstalled")
    ours = {pipeline.ledger_topic, pipeline.control_topic}
    topics = Topics(pipeline.kafka)

    def uninstall(*arguments: str) -> Any:
        command = ["uninstall", "--json", "--cluster", str(lab.cluster_file), "--group", group, *arguments]
        result = CliRunner().invoke(app, command)
        if isinstance(result.exception, EosError) and not result.stdout:
            raise result.exception
        return json.loads(result.stdout)["plan"]

    write(pipeline, Run("p", day(1)))
    write(pipeline, Run("p", day(2)), only=1)
    lines = uninstall()["lines"]
    assert all(any(f" topic {name} (id" in line and " stays: " in line for line in lines) for name in ours)
    with pytest.raises(RefusedError, match="Interval runs are in progress: p@2013-01-02"):
        uninstall("--ledgers")
    write(pipeline, Run("p", day(2)))
    plan = uninstall("--ledgers")
    removed = [item for item in plan["content"]["removes"] if item["kind"] == "topic"]
    assert {item["name"] for item in removed} == ours
    assert all("delivered again" in item["why"] for item in removed)
    with pytest.raises(PlanMovedError):
        uninstall("--plan", plan["hash"])  # without --ledgers that is another plan
    uninstall("--ledgers", "--plan", plan["hash"])
    assert set(topics.describe([*ours, other, "topic-of-uninstalled"])) == {other, "topic-of-uninstalled"}


def test_nothing_begins_while_what_is_left_is_removed(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the group's lease, beside controllers that come before, in between and meanwhile."""
    kafka, group = lab.cluster().kafka, lab.group_id
    monkeypatch.setattr(removal, "PLANS_FOLDER", tmp_path)
    plans = [tmp_path / f"{name}.json" for name in "ab"]

    def controller() -> Journal:
        return Journal(kafka, group, actor="another")

    def begin(journal: Journal) -> None:
        journal.write_change(ChangeRecord("c", "fence", "c", {"hash": "x"}, RolloutState.RUNNING, 0.0), "begun")

    with ConnectSession(lab.cluster()) as session:

        def planned() -> Plan:
            return UNINSTALL.plan(session, UninstallRequest(group="nobodys"))

        def remove(plan: Plan, report: Callable[[str], None] = lambda line: None) -> None:
            carry_out(UNINSTALL, session, plan, actor="test", report=report)

        for path in plans:
            path.touch()
        of_files = planned()
        assert [line.split()[0] for line in of_files.lines if line[0] == "-"] == ["-file", "-file"], "no journal yet"
        working = controller()
        working.acquire()
        begin(working)
        with pytest.raises(RefusedError, match="is not finished"):
            remove(of_files)
        assert all(path.exists() for path in plans)
        close_what_is_open(lab)
        with pytest.raises(PlanMovedError, match="does not fit any more"):
            remove(of_files)
        assert all(path.exists() for path in plans)

        waiting = controller()
        waiting.acquire()  # it has announced nothing so far

        def cut_off(line: str) -> None:
            with pytest.raises(LeaseHeldError, match="test"):
                controller().acquire()
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            remove(planned(), cut_off)
        assert [path.exists() for path in plans] == [False, True]
        with (
            pytest.raises(RefusedError, match="is not finished"),
            group_change(controller(), "fence", "c", {"hash": "x"}),
        ):
            pass
        with pytest.raises(FencedError):
            begin(waiting)
        remove(planned())
        assert not any(path.exists() for path in plans)
        assert not Topics(kafka).describe([journal_topic(group)])

        plans[0].touch()
        remove(planned())  # files alone: the journal is made for the lease
        assert not plans[0].exists()
        assert not Topics(kafka).describe([journal_topic(group)])
        assert planned().nothing


def test_the_topics_of_a_connect_cluster_are_never_taken_for_ledgers(lab: Lab) -> None:
    for arguments in (["--group", lab.group_id], ["--group", lab.group_id, "--ledgers"]):
        result = CliRunner().invoke(app, ["uninstall", "--cluster", str(lab.cluster_file), *arguments])
        assert isinstance(result.exception, RefusedError)
