"""The interval DAG of the repository in a real Airflow, with real Spark and a real broker."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from airflow_eos_provider.demo.flights import january
from airflow_eos_provider.demo.intervals import DAY, FIRST_DAY, compare_days
from airflow_eos_provider.demo.oracle import Drained, drain
from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.verify import statuses
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.servers.airflow import AirflowLab, AirflowOptions, wait_for_dag
from airflow_eos_provider.lab.servers.airflow_rest import FINAL_STATES, AirflowRest
from airflow_eos_provider.lab.servers.postgres import Postgres
from tests.broker_only import describe
from tests.lab.spark_class_data import ensure_spark_archive, spark_jvm_options
from tests.system.components import copy_with_early_retries, ended, links, succeeded, tries, tries_lost
from tests.system.task_killer import TaskKiller
from tests.waiting import API_PAUSE_SECONDS, until

pytestmark = pytest.mark.timeout(1800)

REPOSITORY_DAGS = Path(__file__).parents[2] / "dags"
EXTRA_DAGS = Path(__file__).parent / "dags"

DAG_ID = "flights_daily"
DOWNSTREAM_ID = "flights_daily_ready"
EXTRAS_ID = "interval_extras"
LEDGER = "eos-intervals-flights.daily-offsets"

#: Type and job of an event behind a day that was written, and what its facet has of the task's result.
COMPLETED = ("COMPLETE", f"{DAG_ID}.write")
SAID = ("records", "digest", "slices", "already")
DAYS = 2
SECOND_DAY = Interval(FIRST_DAY + DAY, FIRST_DAY + 2 * DAY).name
DEADLINE_SECONDS = 300.0

#: Beside Airflow's folder: a line for each event that OpenLineage's transport has sent.
LINEAGE = "lineage.jsonl"


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    lab = describe(lab_factory(name="intervals", workers=0))
    for topic in ("flights.daily", "flights.decorated"):
        lab.create_topic(topic, 3)
    return lab


@pytest.fixture(scope="module")
def airflow(lab: Lab, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowLab]:
    folder = tmp_path_factory.mktemp("airflow")
    dags, flights = folder / "dags", folder / "flights"
    dags.mkdir()
    flights.mkdir()
    ensure_spark_archive(print)
    copy_with_early_retries(REPOSITORY_DAGS / "example_backfill.py", dags)
    shutil.copy(REPOSITORY_DAGS / "flights_source.py", dags)
    shutil.copy(EXTRA_DAGS / "interval_extras.py", dags)
    (flights / "2013-01.jsonl").write_bytes(b"".join(january()))
    options = AirflowOptions(
        folder=folder / "airflow",
        dags_folder=dags,
        postgres=postgres,
        connections={
            "kafka_default": json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": lab.bootstrap_servers}}),
            # In the process of its driver, two tasks at once, four tries each.
            "spark_default": json.dumps({"conn_type": "spark", "host": "local[2,4]"}),
        },
        environment={
            "AIRFLOW_VAR_FLIGHTS_FOLDER": str(flights),
            "SPARK_LOCAL_IP": "127.0.0.1",
            # Of the drivers. A folder with spark-defaults.conf would change their class path, which the archive is for.
            "SPARK_SUBMIT_OPTS": spark_jvm_options(),
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
                {"type": "file", "log_file_path": str(folder / LINEAGE), "append": True}
            ),
            # Of an event that is not made within ten seconds, which is the default, nothing is sent.
            "AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT": "240",
        },
    )
    running = AirflowLab.start(options)
    try:
        for dag_id in (DAG_ID, DOWNSTREAM_ID, EXTRAS_ID):
            wait_for_dag(running, dag_id, 300.0)
        yield running
    finally:
        running.stop()


@pytest.fixture
def rest(airflow: AirflowLab) -> Iterator[AirflowRest]:
    with airflow.rest() as rest:
        yield rest


def from_the_first(width: timedelta) -> str:
    """The name of an interval that begins with the first day."""
    return Interval(FIRST_DAY, FIRST_DAY + width).name


def log_of(rest: AirflowRest, dag_id: str, run_id: str, task_id: str, try_number: int = 1) -> str:
    return "\n".join(line.text for line in rest.log(dag_id, run_id, task_id, try_number))


def eos(lab: Lab, *arguments: str) -> dict[str, Any]:
    command = [str(Path(sys.executable).parent / "eos"), "intervals", *arguments]
    described = ("--cluster", str(lab.cluster_file), "--json")
    output = subprocess.run([*command, *described], capture_output=True, text=True, check=True, timeout=240)
    return json.loads(output.stdout)


@dataclass(frozen=True)
class Backfilled:
    """What a backfill of the first days has left.

    :param lost: how many of these Airflow has given up, since the task's process had ended.
    :param extras_run: of the DAG whose sensor waited, deferred, for the first day before any was begun.
    """

    states: dict[str, str]
    killed: bool
    summaries: dict[str, dict[str, Any]]
    tries: list[int]
    lost: list[int]
    log: str
    drained: Drained
    extras_run: str


@pytest.fixture(scope="module")
def backfilled(lab: Lab, airflow: AirflowLab) -> Backfilled:
    """The first days, written backwards, while the process of a task is killed; the demo kills its Spark."""
    with airflow.rest() as rest, TaskKiller(airflow) as killer:
        extras_run = run_whose_sensor_has_deferred(rest)
        rest.unpause(DOWNSTREAM_ID)
        rest.unpause(DAG_ID)
        rest.backfill(DAG_ID, FIRST_DAY, FIRST_DAY + (DAYS - 1) * DAY, max_active_runs=2, backwards=True)

        def all_have_ended() -> bool:
            states = rest.run_states(DAG_ID).values()
            return bool(states) and FINAL_STATES.issuperset(states)

        until(all_have_ended, "the end of each day", seconds=DEADLINE_SECONDS, pause=API_PAUSE_SECONDS)
        states = rest.run_states(DAG_ID)
        summaries = [rest.xcom(DAG_ID, run_id, "write") for run_id, state in states.items() if state == "success"]
        return Backfilled(
            states=states,
            killed=killer.killed,
            summaries={summary["interval"]: summary for summary in summaries},
            tries=[rest.task_instances(DAG_ID, run_id)[0].try_number for run_id in states],
            lost=[tries_lost(airflow, run_id, "write") for run_id in states],
            log="\n".join(tries(rest, DAG_ID, run_id) for run_id in states),
            drained=drain(lab.cluster().kafka, "flights.daily"),
            extras_run=extras_run,
        )


def run_whose_sensor_has_deferred(rest: AirflowRest) -> str:
    rest.unpause(EXTRAS_ID)
    rest.backfill(EXTRAS_ID, FIRST_DAY, FIRST_DAY)

    def states() -> dict[str, str | None]:
        runs = rest.run_states(EXTRAS_ID)
        return {task.task_id: task.state for run_id in runs for task in rest.task_instances(EXTRAS_ID, run_id)}

    until(
        lambda: states().get("wait") == "deferred",
        "the sensor to defer",
        seconds=DEADLINE_SECONDS,
        pause=API_PAUSE_SECONDS,
    )
    (run_id,) = rest.run_states(EXTRAS_ID)
    return run_id


@pytest.fixture(scope="module")
def runs(backfilled: Backfilled, airflow: AirflowLab) -> dict[str, str]:
    """Manual runs behind the backfill that go on side by side, for a test each."""
    around_the_start = Interval(FIRST_DAY - timedelta(hours=1), FIRST_DAY + DAY / 2).name  # in the same month's file
    confs = {
        "no interval": {},
        "half": {"interval": from_the_first(DAY / 2)},
        "overlapping": {"interval": around_the_start},
        "revision": {"interval": SECOND_DAY, "revision": 2},
    }
    with airflow.rest() as rest:
        return {name: rest.trigger(DAG_ID, conf) for name, conf in confs.items()}


def test_a_backfill_backwards_with_kills_on_the_way_writes_every_day_exactly_once(backfilled: Backfilled) -> None:
    assert list(backfilled.states.values()) == ["success"] * DAYS, backfilled.log
    assert backfilled.killed
    # It costs one try; the killed task's driver lives on meanwhile. No other try is begun but by Airflow itself.
    assert sum(backfilled.lost) > 0, backfilled.log
    assert backfilled.tries == [1 + lost for lost in backfilled.lost], backfilled.log

    comparison, days = compare_days(backfilled.drained, DAYS, backfilled.summaries)
    assert comparison.exactly_once, comparison.examples
    assert [day["complete"] for day in days] == [True] * DAYS
    assert [(day["interval"], day["records"]) for day in days] == [
        ("2013-01-01T05:00:00Z/2013-01-02T05:00:00Z", 842),
        ("2013-01-02T05:00:00Z/2013-01-03T05:00:00Z", 943),
    ]


def test_each_day_has_an_event_of_the_asset(backfilled: Backfilled, rest: AirflowRest) -> None:
    events = rest._read("/api/v2/assets/events", source_dag_id=DAG_ID, limit=100)["asset_events"]
    assert backfilled.summaries.keys() <= {event["extra"]["interval"] for event in events}


def test_a_revision_from_the_form_writes_a_day_once_more_and_the_command_line_finds_every_record_of_each_run(
    backfilled: Backfilled, runs: dict[str, str], lab: Lab, rest: AirflowRest
) -> None:
    succeeded(rest, DAG_ID, runs["revision"])
    revised, first = rest.xcom(DAG_ID, runs["revision"], "write"), backfilled.summaries[SECOND_DAY]
    assert (revised["run"], revised["revision"], revised["already"]) == (f"{first['run']}#2", 2, False)
    assert (revised["records"], revised["digest"]) == (first["records"], first["digest"])

    listed = [run for run in eos(lab, "list")["runs"] if run["run"].startswith("flights.daily@")]
    assert {run["state"] for run in listed} == {"complete"}
    assert {run["run"] for run in listed} == {revised["run"], *(each["run"] for each in backfilled.summaries.values())}
    verified = eos(lab, "verify", "--pipeline", "flights.daily", "--topic", "flights.daily")
    assert verified["holds"] is True
    assert verified["found"]["records"] == sum(run["records"] for run in listed)
    assert verified["found"]["records"] > 2000


def test_the_buttons_of_a_task_lead_to_its_interval_on_the_page_and_to_spark(
    backfilled: Backfilled, airflow: AirflowLab, rest: AirflowRest
) -> None:
    run_id = next(iter(backfilled.states))
    run = quote(rest.xcom(DAG_ID, run_id, "write")["run"], safe="")
    shown = links(rest, DAG_ID, run_id, "write")
    assert shown.keys() == {"Interval", "Spark UI"}
    page = f"{airflow.url}/plugin/exactly-once#/intervals"
    assert shown["Interval"] == f"{page}/kafka_default/eos-intervals/flights.daily/{run}"


def test_openlineage_receives_what_each_day_has_read_and_where_it_is_complete(
    backfilled: Backfilled, airflow: AirflowLab, lab: Lab
) -> None:
    """A process of its own sends an event behind the task's end, so the last one comes later than the run."""
    file = airflow.folder.parent / LINEAGE

    def completed() -> dict[str, dict[str, Any]]:
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # the last line may be half written
        events = [json.loads(line) for line in whole.splitlines()]
        of_runs = [event for event in events if (event["eventType"], event["job"]["name"]) == COMPLETED]
        return {event["run"]["facets"]["eos_interval"]["interval_run"]: event for event in reversed(of_runs)}

    of_days = {summary["run"] for summary in backfilled.summaries.values()}
    assert len(of_days) == DAYS
    until(
        lambda: of_days <= completed().keys(),
        "an event for each day",
        seconds=DEADLINE_SECONDS,
        pause=API_PAUSE_SECONDS,
    )
    ledger = {record.key: record.value for record in read_to_end(lab.cluster().kafka, LEDGER).records}
    read = 0
    for summary in backfilled.summaries.values():
        event = completed()[summary["run"]]
        facet = event["run"]["facets"]["eos_interval"]
        assert {name: facet[name] for name in SAID} == {name: summary[name] for name in SAID}
        assert (facet["group_id"], facet["ledger_topic"]) == ("eos-intervals", LEDGER)
        assert ledger[facet["ledger_key"].encode()]
        assert [(one["namespace"], one["name"]) for one in event["outputs"]] == [
            (f"kafka://{lab.bootstrap_servers}", "flights.daily")
        ]
        for folder in event["inputs"]:  # none where the driver of a killed task had completed the day
            assert (folder["namespace"], folder["name"]) == ("file", str(airflow.folder.parent / "flights"))
            read += 1
    assert read >= DAYS - 1


def test_clearing_a_finished_day_is_a_quick_no_op(backfilled: Backfilled, rest: AirflowRest) -> None:
    run_id = next(iter(backfilled.states))
    before = rest.xcom(DAG_ID, run_id, "write")
    attempts = rest.task_instances(DAG_ID, run_id)[0].try_number
    whole = {"dry_run": False, "dag_run_id": run_id, "only_failed": False, "reset_dag_runs": True}
    rest._write("POST", f"/api/v2/dags/{DAG_ID}/clearTaskInstances", content=whole)
    succeeded(rest, DAG_ID, run_id)
    after = rest.xcom(DAG_ID, run_id, "write")
    attempt = rest.task_instances(DAG_ID, run_id)[0].try_number
    assert attempt > attempts
    assert after["already"] is True
    assert (after["records"], after["digest"]) == (before["records"], before["digest"])
    # No Spark was started: that follows this line.
    assert "is not complete" in log_of(rest, DAG_ID, run_id, "write", 1)
    assert "is not complete" not in log_of(rest, DAG_ID, run_id, "write", attempt)


def test_half_of_a_finished_day_is_complete_as_its_part(runs: dict[str, str], rest: AirflowRest) -> None:
    half, day = from_the_first(DAY / 2), from_the_first(DAY)
    run_id = runs["half"]
    succeeded(rest, DAG_ID, run_id)
    found = rest.xcom(DAG_ID, run_id, "write")
    assert (found["interval"], found["part_of"], found["already"]) == (half, f"flights.daily@{day}", True)
    assert (found["records"], found["digest"]) == (None, None)
    text = log_of(rest, DAG_ID, run_id, "write")
    assert "as a part of" in text
    assert "is not complete" not in text, "no Spark was started"


def test_the_downstream_dag_learns_of_every_day(
    backfilled: Backfilled, runs: dict[str, str], rest: AirflowRest
) -> None:
    """At the latest with the next event: of two within a second or two, Airflow leaves the second one behind."""
    succeeded(rest, DAG_ID, runs["half"])  # a no-op, with an event
    until(
        lambda: backfilled.summaries.keys() <= _reported(rest),
        "the runs behind the days",
        seconds=DEADLINE_SECONDS,
        pause=API_PAUSE_SECONDS,
    )


def _reported(rest: AirflowRest) -> set[str]:
    """The intervals that the downstream DAG's runs have reported so far."""
    runs = [run for run, state in rest.run_states(DOWNSTREAM_ID).items() if state == "success"]
    return {entry["interval"] for run in runs for entry in rest.xcom(DOWNSTREAM_ID, run, "report")}


def test_a_manual_run_without_an_interval_fails_at_once_and_says_what_to_do(
    runs: dict[str, str], rest: AirflowRest
) -> None:
    run_id = runs["no interval"]
    assert ended(rest, DAG_ID, run_id) == "failed"
    (task,) = rest.task_instances(DAG_ID, run_id)
    assert task.try_number == 1
    text = log_of(rest, DAG_ID, run_id, "write")
    assert "has no data interval" in text
    assert "params.interval" in text


def test_an_overlapping_interval_is_refused_and_not_tried_again(runs: dict[str, str], rest: AirflowRest) -> None:
    run_id = runs["overlapping"]
    assert ended(rest, DAG_ID, run_id) == "failed"
    assert rest.task_instances(DAG_ID, run_id)[0].try_number == 1
    assert "overlaps" in log_of(rest, DAG_ID, run_id, "write")


def test_the_deferred_sensor_waits_for_a_day_and_the_decorator_and_mapped_tasks_follow(
    backfilled: Backfilled, lab: Lab, rest: AirflowRest
) -> None:
    run_id = backfilled.extras_run
    succeeded(rest, EXTRAS_ID, run_id)
    summary = rest.xcom(EXTRAS_ID, run_id, "decorated")
    assert summary["records"] > 0
    events = rest._read("/api/v2/assets/events", source_dag_id=EXTRAS_ID, limit=100)["asset_events"]
    halves = [Interval(FIRST_DAY + n * DAY / 2, FIRST_DAY + (n + 1) * DAY / 2).name for n in range(2)]
    mapped = [event["extra"] for event in events if event["source_task_id"] == "halves"]
    assert sorted(extra["interval"] for extra in mapped) == halves, "each mapped task has an event"
    assert {extra["part_of"] for extra in mapped} == {f"flights.daily@{from_the_first(DAY)}"}
    pipeline = Pipeline(name="flights.decorated", group_id="eos-intervals", kafka=lab.cluster().kafka)
    (status,) = statuses(pipeline)
    assert (status.complete, status.records) == (True, summary["records"])
    assert drain(lab.cluster().kafka, "flights.decorated").records == summary["records"]
    arguments = ("verify", summary["run"], "--topic", "flights.decorated", "--header", "eos-run")
    assert eos(lab, *arguments)["holds"] is True
