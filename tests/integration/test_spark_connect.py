"""Intervals written through a real Spark Connect server; what a committed reader gets is compared with the source."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql.connect.client.retries import DefaultPolicy

from airflow_eos_provider.errors import ConfigurationError, EosError, FencedError, UnreachableError
from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.interval.sources import files_source
from airflow_eos_provider.interval.spark.backfill import require_all_complete, write_intervals
from airflow_eos_provider.interval.spark.plans.connect_plan import refuse_unstable_remote
from airflow_eos_provider.interval.spark.sessions import interrupt, look_often, stop
from airflow_eos_provider.interval.spark.shipping import package, ship
from airflow_eos_provider.interval.spark.spark_files import pinned_files
from airflow_eos_provider.interval.spark.write import write_interval
from airflow_eos_provider.lab.lab import Lab
from tests.connect_server import ConnectServer
from tests.integration.interval_target import DAY, Driver, HeldFiles, Target, day, drivers, jobs
from tests.waiting import until

HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    return lab_factory(name="connect", workers=0)


@pytest.fixture
def target(lab: Lab) -> Target:
    return Target.make(lab, "connect-tests", 4, 120_000)


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, spark_properties: dict[str, str], nothing_is_left_running: None
) -> Iterator[ConnectServer]:
    folder = tmp_path_factory.mktemp("spark-connect")
    started = ConnectServer(folder, spark_properties)
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture
def remote(server: ConnectServer) -> Iterator[Any]:
    session = server.session()
    yield session
    session.stop()


@pytest.fixture
def start_client(tmp_path: Path, server: ConnectServer) -> Iterator[Callable[..., Driver]]:
    with drivers(tmp_path, {"spark.remote": server.url}) as start:
        yield start


@pytest.fixture(scope="module")
def ten_rows(server: ConnectServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for frames whose plans are judged and whose rows are not written."""
    session, folder = server.session(), tmp_path_factory.mktemp("ten-rows")
    parquet(session, folder, DAY, 10)
    session.stop()
    return folder / f"{DAY.start:%Y-%m-%d}"


def parquet(remote: Any, folder: Path, interval: Interval, rows: int = 1000) -> Any:
    """The rows of :func:`interval_jobs.numbered` as a frame over files."""
    path = str(folder / f"{interval.start:%Y-%m-%d}")
    value = f"""'{{"line":' || id || ',"interval":"{interval.name}","text":"{jobs.PADDING}"}}'"""
    remote.range(rows).selectExpr("cast(id as string) as key", f"{value} as value").write.parquet(path)
    return remote.read.parquet(path)


def test_a_session_has_what_tasks_need_ahead_of_what_is_installed(remote: Any) -> None:
    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import sys

        import pyarrow

        list(batches)
        yield pyarrow.RecordBatch.from_pylist([{"entry": entry} for entry in sys.path])

    ship(remote)
    ship(remote)
    path = [row.entry for row in remote.range(0, 1, 1, 1).mapInArrow(look, "entry string").collect()]
    (shipped,) = [number for number, entry in enumerate(path) if entry.endswith(package()[0])]
    assert shipped < min(number for number, entry in enumerate(path) if entry.endswith("site-packages"))
    assert not any(package()[0] in entry for entry in sys.path)


def test_a_dataframe_arrives_exactly_once_and_a_second_run_is_a_no_op(
    remote: Any, target: Target, tmp_path: Path
) -> None:
    frame = parquet(remote, tmp_path, DAY)
    lines: list[str] = []
    done = write_interval(frame, target.pipeline, DAY, slices=5, tasks=2, report=lines.append)
    assert (done.records, done.slices, done.already) == (1000, 5, False)
    assert any("5 of 5 slices in 2 tasks" in line for line in lines)
    assert not any("once more" in line for line in lines)  # files are held, and their plan hides nothing
    again = write_interval(frame, target.pipeline, DAY)
    assert (again.already, again.records, again.digest) == (True, done.records, done.digest)
    target.require_exactly_once(jobs.numbered_values(DAY))
    by_python = parquet(remote, tmp_path, day(1), 100).mapInArrow(lambda batches: batches, frame.schema)
    write_interval(by_python, target.pipeline, day(1), slices=2, report=lines.append)
    assert any("once more" in line for line in lines)  # a plan does not tell what a function of Python's does
    target.require_exactly_once([*jobs.numbered_values(DAY), *jobs.numbered_values(day(1), 100)])


def test_a_retry_compares_its_rows_with_what_is_committed(
    server: ConnectServer, remote: Any, target: Target, tmp_path: Path
) -> None:
    """Also in a session that is not the active one, and with a key whose name reads like a path.

    What it freezes may be of two evaluations, for the server does not tell; so it is evaluated once more.
    """
    session = server.session()
    assert type(remote).active() is not session
    frame = parquet(session, tmp_path, DAY, 300).selectExpr("key", "value", "key as `order.id`")
    misplaced = frame.selectExpr("*", "if(pmod(xxhash64(key), 3) = 2, 99, null) as partition")
    values: dict[str, Any] = {"key": "order.id", "pin_inputs": False}
    with pytest.raises(ConfigurationError, match="partition 99"):
        write_interval(misplaced, target.pipeline, DAY, slices=3, tasks=1, **values)
    assert target.values()
    lines: list[str] = []
    write_interval(frame, target.pipeline, DAY, report=lines.append, **values)
    assert any("once more" in line for line in lines)
    target.require_exactly_once(jobs.numbered_values(DAY, 300))
    session.stop()


def test_the_number_of_slots_bounds_a_barrier_stage(
    remote: Any, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_eos_provider.interval.spark.slicing.speculates", lambda spark: True)
    frame = parquet(remote, tmp_path, DAY, 100)
    with pytest.raises(ConfigurationError, match="only 2 run at once"):
        write_interval(frame, target.pipeline, DAY, slices=4, tasks=3)
    assert write_interval(frame, target.pipeline, DAY, slices=4).records == 100


# Plans


def _with_view(frame: Any, expression: str) -> Any:
    from pyspark.sql.connect.functions import udf

    frame.withColumn("key", udf(lambda key: key)("key")).createOrReplaceTempView("hiding")
    return frame.sparkSession.sql(expression)


def _with_variable(frame: Any) -> Any:
    frame.sparkSession.sql("declare or replace variable least int default 3").collect()
    return frame.where("key > least")


def _with_registered(frame: Any) -> Any:
    frame.sparkSession.udf.register("by_name", lambda key: key)
    return frame.selectExpr("by_name(key) as key", "value")


def _by_chance(frame: Any) -> Any:
    from pyspark.sql.connect.functions import udf

    return frame.withColumn("key", udf(lambda key: key).asNondeterministic()("key"))


UNSTABLE: dict[str, Callable[[Any], Any]] = {
    "rand": lambda frame: frame.selectExpr("cast(rand() as string) as key", "value"),
    "uuid": lambda frame: frame.selectExpr("uuid() as key", "value"),
    "monotonically_increasing_id": lambda frame: frame.selectExpr("monotonically_increasing_id() as key", "value"),
    "current_timestamp": lambda frame: frame.where("current_timestamp() > timestamp'2013-01-01'"),
    "now": lambda frame: frame.where("cast('now' as timestamp) > timestamp'2013-01-01'"),
    "a wide plan": lambda frame: frame.selectExpr("key", "value", *(f"key as c{n}" for n in range(40))).where(
        " and ".join(["c1 = c1", *(f"c{n} is not null" for n in range(40)), "rand() < 2 * length(key)"])
    ),
    "limit": lambda frame: frame.orderBy("key").limit(5),
    "sample": lambda frame: frame.sample(0.5),
    "first": lambda frame: frame.dropDuplicates(["value"]),
    "collect_list": lambda frame: frame.groupBy("value").agg({"key": "collect_list"}).toDF("value", "key"),
    "checkpoint": lambda frame: frame.localCheckpoint(),
    "not deterministic": _by_chance,
    "registered function by_name": _with_registered,
    "a temporary view": lambda frame: _with_view(frame, "select key, value from hiding"),
    "a session variable": _with_variable,
    "made on the driver by rand": lambda frame: frame.sparkSession.sql("select 'x' as value, rand() as key"),
}


@pytest.mark.parametrize("named", UNSTABLE)
def test_rows_that_may_move_are_refused(remote: Any, ten_rows: Path, named: str) -> None:
    frame = UNSTABLE[named](remote.read.parquet(str(ten_rows)))
    with pytest.raises(ConfigurationError, match="The rows of a slice depend on"):
        refuse_unstable_remote(frame, ["key"])


STABLE: dict[str, tuple[bool, Callable[[Any], Any]]] = {
    "files": (True, lambda frame: frame),
    "content by chance": (True, lambda frame: frame.selectExpr("key", "uuid() as value")),
    "content by arrival": (True, lambda frame: frame.groupBy("key").agg({"value": "collect_list"})),
    "a join": (True, lambda frame: frame.join(frame.selectExpr("key", "value as other"), "key")),
    "a filter, an explosion": (
        True,
        lambda frame: frame.where("key > 3").selectExpr("explode(array(key)) key", "value"),
    ),
    "a function of Python's": (False, lambda frame: frame.mapInArrow(lambda batches: batches, frame.schema)),
    "a list": (True, lambda frame: frame.sparkSession.createDataFrame([("a", "b")], "key string, value string")),
    "a cached frame": (False, lambda frame: frame.cache()),
    "a query that is given the frame": (
        True,
        lambda frame: frame.sparkSession.sql("select key, value from {rows} where key > 3", rows=frame),
    ),
    "a window": (False, lambda frame: frame.selectExpr("row_number() over (order by key) as key", "value")),
}


@pytest.mark.parametrize("kind", STABLE)
def test_rows_that_stay_are_accepted_and_it_is_known_whether_that_is_certain(
    remote: Any, ten_rows: Path, kind: str
) -> None:
    certain, make = STABLE[kind]
    assert refuse_unstable_remote(make(remote.read.parquet(str(ten_rows))), ["key"]) is certain
    assert remote.conf.get("spark.sql.debug.maxToStringFields") == "25"


# Files


def test_a_frame_is_read_as_its_files_are_now_and_what_the_server_keeps_of_them_is_refused(
    remote: Any, target: Target, tmp_path: Path
) -> None:
    """The server uses an analyzed plan again, with the files as it listed them then."""
    path = tmp_path / "part-0.json"
    path.write_text('{"line":0}\n')
    frame = remote.read.text(str(tmp_path)).selectExpr("value as key", "value")
    assert frame.columns == ["key", "value"]
    assert frame.count() == 1
    lines = [f'{{"line":{n}}}'.encode() for n in range(10)]
    path.write_bytes(b"\n".join(lines))
    (tmp_path / "part-1.json").write_bytes(b'{"line":10}')
    assert write_interval(frame, target.pipeline, DAY, slices=2).records == 11
    target.require_exactly_once([*lines, b'{"line":10}'])

    name = f"kept_{uuid.uuid4().hex}"
    remote.sql(f"create table {name} (value string) using text location '{tmp_path}'").collect()
    try:
        for kept, words in ((remote.table(name), rf"the table \S*{name}"), (frame.cache(), "a cached frame")):
            kept.count()  # from now on Spark names no files of the cached frame
            with pytest.raises(ConfigurationError, match=f"reads {words}, of which the session"):
                pinned_files(kept)
    finally:
        frame.unpersist()
        remote.sql(f"drop table {name}").collect()


# What dies


def test_a_client_whose_interval_another_one_has_taken_over_is_fenced_and_says_so(
    remote: Any, target: Target, tmp_path: Path, start_client: Callable[..., Driver]
) -> None:
    held = HeldFiles.make(tmp_path)
    late = start_client(target, DAY, "held_files", arguments=held.arguments, tasks=1)
    (late_reader,) = held.wait_for_readers(1)
    source = jobs.held_files(remote, DAY, **held.arguments)
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write_interval, source, target.pipeline, DAY, spark=remote, tasks=1)
        try:
            held.wait_for_readers(2)
            held.let_go(late_reader)
            code, reported = late.wait()
        finally:
            held.go()
        assert writing.result(timeout=240).records == 150
    assert (code, reported["type"]) == (FencedError.exit_code, "FencedError"), reported
    target.require_exactly_once(held.lines)


def test_a_client_killed_within_the_stage_is_followed_by_one_that_writes_the_rest(
    remote: Any, target: Target, tmp_path: Path, start_client: Callable[..., Driver]
) -> None:
    held = HeldFiles.make(tmp_path)
    client = start_client(target, DAY, "held_files", arguments=held.arguments)
    held.wait_for_readers(1)
    client.process.kill()
    client.process.wait(timeout=240)
    held.go()  # the server does not know yet that the client is gone: its task goes on, and is fenced or done
    done = write_interval(jobs.held_files(remote, DAY, **held.arguments), target.pipeline, DAY, spark=remote)
    assert (done.records, done.slices) == (150, 3)
    target.require_exactly_once(held.lines)


def test_the_tasks_end_with_whoever_waits_for_them(remote: Any, target: Target, tmp_path: Path) -> None:
    """As Airflow does when a task is marked failed: from the main thread, while another statement waits."""
    held = HeldFiles.make(tmp_path)
    source = jobs.held_files(remote, DAY, **held.arguments)
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write_interval, source, target.pipeline, DAY, spark=remote)
        (reader,) = held.wait_for_readers(1)
        interrupt()
        with pytest.raises(EosError, match="failed"):
            writing.result(timeout=240)
    until(lambda: not psutil.pid_exists(reader), "the end of the reader", seconds=240)
    held.go()
    assert write_interval(source, target.pipeline, DAY, spark=remote).records == 150
    target.require_exactly_once(held.lines)


# Airflow


# Many intervals


def test_intervals_are_written_some_at_once_and_one_that_fails_hides_no_other(
    remote: Any, target: Target, tmp_path: Path
) -> None:
    days = [day(number) for number in range(6)]
    frames = {interval: parquet(remote, tmp_path, interval, 40) for interval in days}
    asked: list[Interval] = []

    def frame_of(interval: Interval) -> Any:
        asked.append(interval)
        if interval == days[2]:
            raise FileNotFoundError("the third day's folder")
        return (
            frames[interval].selectExpr("cast(rand() as string) as key", "value")
            if interval == days[4]
            else frames[interval]
        )

    lines: list[str] = []
    first = write_intervals(frame_of, target.pipeline, days[:5], spark=remote, slices=2, at_once=3, report=lines.append)
    assert [outcome.interval for outcome in first] == days[:5]
    assert [outcome.error is None for outcome in first] == [True, True, False, True, False]
    assert any(line.startswith(f"{days[0].name}: Spark writes") for line in lines)
    with pytest.raises(EosError, match="2 intervals are not complete") as failure:
        require_all_complete(first)
    assert "the third day's folder" in str(failure.value)
    assert "rand()" in str(failure.value)

    asked.clear()
    again = write_intervals(lambda i: asked.append(i) or frames[i], target.pipeline, [*days, days[0]], spark=remote)
    require_all_complete(again)
    assert [outcome.completed is not None and outcome.completed.already for outcome in again] == [
        True,
        True,
        False,
        True,
        False,
        False,
    ]
    assert sorted(asked) == [days[2], days[4], days[5]]
    target.require_exactly_once(value for interval in days for value in jobs.numbered_values(interval, 40))


def test_hours_are_written_together_and_each_is_complete(remote: Any, target: Target) -> None:
    """Of 12 hours one is complete before, and one is missing: what is left is written by neighbours, 4 at most."""
    hours = [Interval(DAY.start + number * HOUR, DAY.start + (number + 1) * HOUR) for number in range(13)]
    missing = hours.pop(9)
    asked: list[Interval] = []

    def rows(interval: Interval) -> Any:
        asked.append(interval)
        first, last = ((moment - DAY.start) // HOUR for moment in (interval.start, interval.end))
        return remote.range(10 * first, 10 * last).selectExpr("cast(id as string) as key", "cast(id as string) value")

    write_interval(rows(hours[2]), target.pipeline, hours[2], slices=2)
    asked.clear()
    by_bounds = {"slices": 2, "together": 4, "selects_by_bounds": True}
    outcomes = write_intervals(rows, target.pipeline, hours, spark=remote, **by_bounds)

    require_all_complete(outcomes)
    assert [outcome.interval for outcome in outcomes] == hours
    runs = [(0, 2), (3, 7), (7, 9), (9, 12)]
    wholes = [Interval(hours[first].start, hours[last - 1].end) for first, last in runs]
    assert sorted(asked) == wholes
    written_by = [outcome.completed.run.interval for outcome in outcomes if outcome.completed is not None]
    assert written_by == [wholes[0]] * 2 + [hours[2]] + [wholes[1]] * 4 + [wholes[2]] * 2 + [wholes[3]] * 3
    expected = [str(n).encode() for n in range(130) if not 90 <= n < 100]
    target.require_exactly_once(expected)

    asked.clear()
    again = write_intervals(rows, target.pipeline, [*hours, missing], spark=remote, slices=2)
    require_all_complete(again)
    assert asked == [missing], "what is complete, by itself or as a part, is left alone"
    done = write_interval(rows(hours[5]), target.pipeline, hours[5], slices=2)
    assert (done.already, done.run.interval) == (True, wholes[1])
    target.require_exactly_once([str(n).encode() for n in range(130)])


@pytest.mark.parametrize("together", [1, 2])
def test_an_interval_that_has_not_ended_is_refused_before_any_is_written(target: Target, together: int) -> None:
    with pytest.raises(ConfigurationError, match="had not ended"):
        write_intervals(pytest.fail, target.pipeline, [DAY, day(40_000)], spark=None, together=together)  # type: ignore[arg-type]


def test_a_call_that_is_given_up_ends_its_tasks_and_the_next_one_writes_the_rest(
    remote: Any, target: Target, tmp_path: Path
) -> None:
    """What ends the wait, as a time-out does, comes from a signal of the main thread."""
    held = HeldFiles.make(tmp_path)
    frames = {interval: parquet(remote, tmp_path, interval, 30) for interval in (day(1), day(2))}

    def source_of(interval: Interval) -> Any:
        return frames.get(interval) or jobs.held_files(remote, interval, **held.arguments)

    with held.given_up():
        write_intervals(source_of, target.pipeline, [DAY, *frames], spark=remote, slices=2, at_once=1)
    held.go()
    outcomes = write_intervals(source_of, target.pipeline, [DAY, *frames], spark=remote, slices=2, at_once=2)
    require_all_complete(outcomes)
    target.require_exactly_once([*held.lines, *(v for day in frames for v in jobs.numbered_values(day, 30))])


def test_a_new_server_goes_on_where_one_was_killed(server: ConnectServer, target: Target, tmp_path: Path) -> None:
    """Its sessions are lost with it: no interval is begun any more, and the next session takes over.

    Days that were begun together are finished together, whatever the next call writes together. A session ends without
    a wait for the server, for which pyspark's own looks ten minutes. A listing that is lost is no fault of its paths: a
    task is tried again after what could not be reached, and never after what a person has to correct.
    """
    held = HeldFiles.make(tmp_path)
    days = [DAY, day(1), day(400), day(401), day(402)]  # those of 2014 have no file that is held
    for number in range(2):
        (held.folder / f"{day(400).start:%Y}-{number}.json").write_bytes(b'{"file":9}\n')
    (tmp_path / f"{DAY.start:%Y-%m-%d}.json").write_bytes(b'{"n":1}\n')
    lines = [*held.lines, *[b'{"file":9}'] * 2 * 3]  # which are read by each day of 2014
    asked: list[Interval] = []

    def write(session: Any, together: int) -> Any:
        def source_of(interval: Interval) -> Any:
            asked.append(interval)
            # The year's files are those of any interval within it, so the path's start does not matter.
            return replace(jobs.held_files(session, interval, **held.arguments), by_bounds=True)

        how = {"at_once": 1, "together": together, "selects_by_bounds": True}
        return write_intervals(source_of, target.pipeline, days, spark=session, **how)

    session, listing, ending = (server.session() for _ in range(3))
    session.client.set_retry_policies([DefaultPolicy(max_retries=None, max_backoff=1000)])
    look_often(ending)
    assert [other.range(1).count() for other in (listing, ending)] == [1, 1]
    with ThreadPoolExecutor(2) as threads:
        writing = threads.submit(write, session, 2)
        try:
            held.wait_for_readers(1)
            server.stop(kill=True)
        finally:
            held.go()
        threads.submit(stop, ending).result(timeout=400)
        assert ending.client.is_closed
        server.start()
        first = writing.result(timeout=400)
    with pytest.raises(UnreachableError, match="were not listed: Spark's server was lost"):
        files_source(listing, DAY, f"{tmp_path}/{{start:%Y-%m-%d}}.json", format="lines")
    assert [type(outcome.error) for outcome in first] == [EosError] * 5
    assert ["not started" in str(outcome.error) for outcome in first] == [False, False, True, True, True]
    session = server.session()
    asked.clear()
    try:
        require_all_complete(write(session, 1))
    finally:
        session.stop()
    assert asked == [Interval(DAY.start, day(1).end), *days[2:]]
    target.require_exactly_once(lines)
