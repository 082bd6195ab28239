"""The operator asks the ledger first and last, hands Spark its work without showing secrets, tells failures apart."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, Asset, CronDataIntervalTimetable, CronTriggerTimetable, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_eos_provider.assets.intervals import completed_intervals, interval_asset
from airflow_eos_provider.errors import ConfigurationError, EosError, FencedError, RefusedError
from airflow_eos_provider.hooks.pipeline import interval_of
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.messages import Completed, RunSummary, TaskSummary
from airflow_eos_provider.interval.spark.job import FAILURE_PREFIX, RESULT_PREFIX, JobSpec, load_function
from airflow_eos_provider.local_processes import identify
from airflow_eos_provider.operators import interval_run
from airflow_eos_provider.operators.interval_run import IntervalRunOperator, secret_file
from airflow_eos_provider.stored import to_json

DAY = "2013-01-01T05:00:00Z/2013-01-02T05:00:00Z"


class Ledger:
    """Stands in for the ledger, which needs a broker: what it says, one answer a look."""

    def __init__(self, *answers: Completed | None) -> None:
        self.answers = list(answers)
        self.asked: list[Run] = []
        self.waited: list[bool] = []

    def __call__(self, pipeline: Any, run: Run, *, wait: bool = False) -> Completed | None:
        self.asked.append(run)
        self.waited.append(wait)
        return self.answers.pop(0)


def done(records: int = 842) -> Completed:
    return Completed(Run("flights.daily", Interval.parse(DAY)), records, "ab" * 16, 4, True, 0.1)


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = {"bootstrap.servers": "broker:9092", "sasl.password": "s3cret-pw", "acks": "all"}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": kafka}))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2,4]"}))


class Bench:
    """What surrounds a task: the ledger, its context, a shell script in the place of spark-submit."""

    def __init__(self, context: dict[str, Any], monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.context, self._monkeypatch, self._folder = context, monkeypatch, folder

    def ledger(self, *answers: Completed | None) -> Ledger:
        fake = Ledger(*answers)
        self._monkeypatch.setattr("airflow_eos_provider.interval.verify.completion", fake)
        return fake

    def spark(self, connection: dict[str, Any]) -> None:
        self._monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))

    def submit(self, task: IntervalRunOperator, script: str) -> Any:
        program = self._folder / "spark-submit"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        self._monkeypatch.setenv("PATH", f"{self._folder}:{os.environ['PATH']}")
        return task.execute(self.context)


@pytest.fixture
def bench(context: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    context["dag_run"].data_interval_start = datetime(2013, 1, 1, 5, tzinfo=UTC)
    context["dag_run"].data_interval_end = datetime(2013, 1, 2, 5, tzinfo=UTC)
    context["outlet_events"] = OutletEventAccessors()
    return Bench(context, monkeypatch, tmp_path_factory.mktemp("bin"))


def operator(*, application: str | None = None, **kwargs: Any) -> IntervalRunOperator:
    """A task; the job is the package's own unless another is given."""
    own = {"application": application} if application else {}
    return IntervalRunOperator(
        task_id="write",
        pipeline="flights.daily",
        topic="flights.daily",
        **{"python_callable": "package:flights", **own, **kwargs},
    )


def test_a_complete_interval_is_a_no_op_that_starts_no_spark(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.ledger(done())
    monkeypatch.setattr(IntervalRunOperator, "write", lambda *_: pytest.fail("Spark was started"))
    summary = operator().execute(bench.context)
    assert summary["already"] is True
    assert (summary["interval"], summary["records"], summary["digest"]) == (DAY, 842, "ab" * 16)


def test_a_part_of_a_wider_interval_is_a_no_op_without_figures_of_its_own(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever adds up what the intervals of a pipeline report would count the whole once for each part."""
    week = Run("flights.daily", Interval.parse("2013-01-01T05:00:00Z/2013-01-08T05:00:00Z"))
    bench.ledger(replace(done(), run=week, summary=RunSummary(1, 20, (7, 7, 7), (20, 20, 20), 0)))
    monkeypatch.setattr(IntervalRunOperator, "write", lambda *_: pytest.fail("Spark was started"))
    summary = operator().execute(bench.context)
    assert (summary["run"], summary["interval"], summary["part_of"]) == (f"flights.daily@{DAY}", DAY, week.name)
    assert summary["already"] is True
    assert [summary[name] for name in ("records", "digest", "slices", "metrics")] == [None] * 4


def test_the_summary_is_what_the_ledger_says_after_the_job(bench: Bench) -> None:
    said = bench.ledger(None, done(7))
    summary = bench.submit(operator(), "exit 0")
    assert (summary["records"], summary["already"]) == (7, False)
    assert said.waited == [False, True]  # nobody waits before Spark; after it, `complete` must not be overlooked
    assert [run.name for run in said.asked] == [f"flights.daily@{DAY}"] * 2


def test_the_result_has_what_the_ledger_says_was_moved_and_what_the_job_says_of_its_tasks(bench: Bench) -> None:
    moved = RunSummary(1, 20, (7, 7, 7), (20, 20, 20), 0, {"produce": 0.5})
    bench.ledger(None, replace(done(7), summary=moved))
    said = replace(done(7), tasks=(TaskSummary(0, 1, 1, 7, 20, {"commit": 0.25}),))
    script = f"echo '{RESULT_PREFIX}{{cut short'; echo '{RESULT_PREFIX}{json.dumps(to_json(said))}'"
    result = bench.submit(operator(), script)
    assert result["metrics"] == {**to_json(moved), "tasks": [to_json(said.tasks[0])]}
    assert json.loads(json.dumps(result)) == result, "an XCom is JSON"


def test_the_metrics_of_a_run_arrive_at_a_statsd_server(bench: Bench, datagrams: Callable[[], list[str]]) -> None:
    moved = RunSummary(3, 600, (1, 2, 4), (100, 200, 300), 1, {"produce": 0.5})
    bench.ledger(None, replace(done(7), summary=moved))
    bench.submit(operator(), "exit 0")

    own = "airflow.eos.interval"
    arrived = [line for line in datagrams() if line.startswith(own)]
    assert [line for line in arrived if not line.startswith(f"{own}.duration:")] == [
        *(f"{own}.{name}|c" for name in ("completed:1", "records:7", "bytes:600", "transactions:3")),
        f"{own}.attempts_fenced:1|c",
        *(f"{own}.transaction_records_{size}|g" for size in ("min:1", "avg:2", "max:4")),
        *(f"{own}.transaction_bytes_{size}|g" for size in ("min:100", "avg:200", "max:300")),
        f"{own}.produce_time:500.000000|ms",
    ]
    assert len(arrived) == 13


def test_another_runs_tasks_are_not_taken_for_this_ones(bench: Bench) -> None:
    bench.ledger(None, replace(done(7), summary=RunSummary(0, 0, (0, 0, 0), (0, 0, 0), 0)))
    said = replace(done(7), run=Run("another", Interval.parse(DAY)), tasks=(TaskSummary(0, 1, 1, 7, 20),))
    script = f"echo '{RESULT_PREFIX}{json.dumps(to_json(said))}'"
    assert bench.submit(operator(), script)["metrics"]["tasks"] == []


def test_the_asset_has_an_event_with_the_interval(bench: Bench) -> None:
    bench.ledger(done())
    task = operator()
    task.execute(bench.context)
    asset = interval_asset("flights.daily", "eos-intervals")
    assert asset in task.outlets
    extra = bench.context["outlet_events"][asset].extra
    found = {"interval": DAY, "revision": 1, "records": 842, "digest": "ab" * 16, "already": True, "part_of": None}
    assert extra == {"pipeline": "flights.daily", "group_id": "eos-intervals", **found}
    event = SimpleNamespace(extra=extra)
    assert completed_intervals({asset: [event, event]}) == [extra]  # a no-op has an event, too, but is reported once


def test_the_job_gets_its_work_in_a_file_that_only_this_user_may_read(bench: Bench, tmp_path: Path) -> None:
    bench.ledger(None, done())
    kept, reported = tmp_path / "spec.json", tmp_path / "reported"
    script = f'for a; do last=$a; done; stat -c %a "$last" > {reported}; cp "$last" {kept}; echo "$@" >> {reported}'
    task = operator(slices=3, key=["line"], op_kwargs={"folder": "/data"}, revision="2")
    bench.submit(task, script)
    specification = json.loads(kept.read_text())
    mode, arguments = reported.read_text().splitlines()
    assert mode == "600"
    assert "s3cret-pw" not in arguments
    assert specification["pipeline"]["kafka"]["sasl.password"] == "s3cret-pw"
    assert "acks" not in specification["pipeline"]["kafka"]  # a consumer's or producer's setting is not a client's
    assert (specification["interval"], specification["revision"]) == (DAY, 2)
    assert (specification["slices"], specification["key"]) == (3, ["line"])
    assert (specification["function"], specification["arguments"]) == ("package:flights", {"folder": "/data"})
    assert not Path(arguments.split()[-1]).exists()


def rows_of_this_file(spark: Any, interval: Any) -> Any:
    """For the tests of names."""


class TestCallable:
    """A function itself is sent to the job by its name."""

    def test_one_of_a_package_by_its_module(self) -> None:
        from airflow_eos_provider.demo.flights import flights

        assert operator(python_callable=flights).python_callable == "airflow_eos_provider.demo.flights:flights"
        assert operator(python_callable=rows_of_this_file).python_callable == f"{__name__}:rows_of_this_file"

    def test_one_of_an_installed_module_without_a_package_by_its_module(self) -> None:
        assert operator(python_callable=json.dumps).python_callable == "json:dumps"
        assert operator(python_callable=textwrap.dedent).python_callable == "textwrap:dedent"

    def test_one_of_a_dag_file_by_the_file(self, tmp_path: Path) -> None:
        file = tmp_path / "orders_daily.py"
        file.write_text(
            "from airflow_eos_provider.dag_factories import interval_run_dag\n"
            "def orders(spark, interval):\n    return None\n"
            "dag = interval_run_dag(pipeline='orders', python_callable=orders)\n"
        )
        bag = DagBag(file)
        assert bag.import_errors == {}
        (task,) = bag.dags["orders_intervals"].tasks
        assert task.python_callable == f"{file}:orders"
        assert load_function(task.python_callable).__name__ == "orders"

    @pytest.mark.parametrize(
        "function",
        [lambda spark, interval: None, partial(rows_of_this_file), "".join, Path.glob],
        ids=["lambda", "partial", "method of an object", "method of a class"],
    )
    def test_what_no_job_can_import_is_refused(self, function: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"cannot import(.|\n)*no lambda, nested function or method"):
            operator(python_callable=function)

    def test_a_nested_function_is_refused(self) -> None:
        def nested(spark: Any, interval: Any) -> None: ...

        with pytest.raises(ConfigurationError, match="nested, which a Spark job cannot import"):
            operator(python_callable=nested)


def test_no_secret_is_in_what_airflow_shows(bench: Bench) -> None:
    bench.ledger(done())
    task = operator()
    task.execute(bench.context)
    assert "s3cret-pw" not in str({field: getattr(task, field) for field in task.template_fields})


def test_workers_of_a_local_session_run_this_interpreter(bench: Bench, tmp_path: Path) -> None:
    bench.ledger(None, done())
    bench.submit(operator(), f"echo $PYSPARK_PYTHON > {tmp_path}/python")
    assert (tmp_path / "python").read_text().strip() == sys.executable


@pytest.mark.parametrize(("given", "expected"), [({}, sys.executable), ({"spark.pyspark.driver.python": "p3"}, "p3")])
def test_a_driver_here_keeps_this_interpreter_whatever_executors_run(
    bench: Bench, tmp_path: Path, given: dict[str, str], expected: str
) -> None:
    bench.ledger(None, done())
    packed = {"spark.pyspark.python": "./env/bin/python", **given}
    bench.submit(operator(conf=packed), f'echo "$@" > {tmp_path}/words')
    assert f"--conf spark.pyspark.driver.python={expected} " in (tmp_path / "words").read_text()


def test_the_interpreter_of_drivers_that_this_machine_names_stays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench.ledger(None, done())
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "p4")
    bench.submit(operator(), f'echo "$PYSPARK_DRIVER_PYTHON $@" > {tmp_path}/words')
    words = (tmp_path / "words").read_text()
    assert words.startswith("p4 ")
    assert "spark.pyspark.driver.python" not in words


def test_a_job_that_was_fenced_fails_the_task_for_good_and_says_why(bench: Bench) -> None:
    bench.ledger(None)
    with pytest.raises(AirflowFailException, match="taken over by another run"):
        bench.submit(operator(), f"exit {FencedError.exit_code}")


@pytest.mark.parametrize("error", [ConfigurationError, RefusedError])
def test_a_job_that_was_refused_is_not_tried_again_and_gives_its_reason(bench: Bench, error: type[EosError]) -> None:
    bench.ledger(None)
    reported = {"type": error.__name__, "exit_code": error.exit_code, "message": "the interval overlaps another"}
    script = f"echo '{FAILURE_PREFIX}{json.dumps(reported)}'; exit 1"  # as where the driver runs in the cluster
    with pytest.raises(AirflowFailException, match="the interval overlaps another"):
        bench.submit(operator(), script)


YARN = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}


@pytest.mark.parametrize("error", [ConfigurationError, FencedError])
def test_the_exit_code_of_a_driver_in_yarn_is_heard(bench: Bench, error: type[EosError]) -> None:
    """Its own words stay in its container: these are spark-submit's."""
    bench.ledger(None)
    bench.spark(YARN)
    said = f"ERROR Client: Application diagnostics message: User application exited with status {error.exit_code}"
    script = (
        f"echo 'INFO Client: Submitting application application_1795_0007 to ResourceManager'; echo '{said}'; exit 1"
    )
    with pytest.raises(AirflowFailException, match="yarn logs -applicationId application_1795_0007"):
        bench.submit(operator(), script)


@pytest.mark.parametrize("own", [False, True], ids=["the job", "a program of one's own"])
def test_a_driver_in_yarn_alone_gets_the_login_and_is_started_once(bench: Bench, tmp_path: Path, own: bool) -> None:
    """``--files`` would bring it to each executor's machine, where YARN keeps it."""
    bench.ledger(None, done())
    bench.spark(YARN)
    copies = f'for a; do last=$a; done; cp "$last" {tmp_path}/program; stat -c %a "$last" > {tmp_path}/mode'
    script = f'echo "$@" > {tmp_path}/said; {"exit 0" if own else copies}'
    task = operator(application="local:///opt/job.py" if own else None)
    bench.submit(task, script)
    said = (tmp_path / "said").read_text()
    assert "--conf spark.yarn.maxAppAttempts=1" in said
    assert "s3cret-pw" not in said
    assert ("--files" in said) is own
    if own:
        return
    assert (tmp_path / "mode").read_text().strip() == "600"
    program = (tmp_path / "program").read_text()
    assert "s3cret-pw" in program.splitlines()[2]
    assert [line for line in program.splitlines() if "s3cret" not in line][
        -1
    ] == "sys.exit(carried(SPECIFICATION, __file__))"
    assert not Path(said.split()[-1]).exists()
    assert task.application.endswith("job.py")


KUBERNETES = {"conn_type": "spark", "host": "k8s://https://127.0.0.1", "port": 1, "extra": {"deploy-mode": "cluster"}}
CLIENT_FILE = "/etc/kafka/client.properties"

each_application = pytest.mark.parametrize("application", [None, "local:///opt/job.py", "/opt/own.py"])


@pytest.fixture
def kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark connection to Kubernetes. Airflow's hook wants a client of it, and asks it nothing while it submits."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(KUBERNETES))
    monkeypatch.setattr(
        "airflow.providers.apache.spark.hooks.spark_submit.kube_client", SimpleNamespace(), raising=False
    )


def test_a_kubernetes_without_airflows_provider_for_it_is_refused_in_words(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.ledger(None)
    bench.spark(KUBERNETES)
    monkeypatch.delattr("airflow.providers.apache.spark.hooks.spark_submit.kube_client", raising=False)
    with pytest.raises(AirflowFailException, match="Install apache-airflow-providers-cncf-kubernetes"):
        operator().execute(bench.context)


@each_application
@pytest.mark.usefixtures("kubernetes")
def test_no_login_is_uploaded_for_a_driver_on_kubernetes(bench: Bench, tmp_path: Path, application: str | None) -> None:
    """Nobody removes what is in ``spark.kubernetes.file.upload.path``."""
    bench.ledger(None)
    task = operator(application=application)
    with pytest.raises(AirflowFailException, match=r"login \(sasl.password\).*\n.*\n.*client_file") as refused:
        bench.submit(task, f"touch {tmp_path}/submitted")
    assert "s3cret-pw" not in str(refused.value)
    assert not (tmp_path / "submitted").exists()


@each_application
@pytest.mark.usefixtures("kubernetes")
def test_a_driver_on_kubernetes_has_its_login_from_a_file_there(
    bench: Bench, tmp_path: Path, application: str | None
) -> None:
    bench.ledger(None, done())
    copy = f'for a; do case "$a" in */eos-interval-*) cp "$a" {tmp_path}/sent;; esac; done'
    task = operator(client_file=CLIENT_FILE, application=application)
    bench.submit(task, f'printf "%s\\n" "$@" > {tmp_path}/said; {copy}; echo "Exit code: 0"')
    said = (tmp_path / "said").read_text()
    sent = (tmp_path / "sent").read_text() if application != "local:///opt/job.py" else said
    assert "s3cret-pw" not in said + sent
    assert CLIENT_FILE in sent
    assert "broker:9092" in sent
    assert ("--files" in said) is (application == "/opt/own.py")
    if application == "local:///opt/job.py":
        (line,) = [
            line for line in said.splitlines() if line.startswith("spark.kubernetes.driverEnv.EOS_INTERVAL_SPEC=")
        ]
        assert JobSpec.from_dict(json.loads(line.partition("=")[2])).client_file == CLIENT_FILE
        assert said.splitlines()[-1] == application


@pytest.mark.parametrize("error", [ConfigurationError, FencedError])
@pytest.mark.usefixtures("kubernetes")
def test_the_exit_code_of_a_driver_on_kubernetes_is_heard(bench: Bench, error: type[EosError]) -> None:
    bench.ledger(None)
    script = f"echo 'pod name: eos-flights-1a2b-driver'; echo '\t exit code: {error.exit_code}'; exit 0"
    with pytest.raises(AirflowFailException, match="kubectl logs eos-flights-1a2b-driver"):
        bench.submit(operator(client_file=CLIENT_FILE), script)


@pytest.mark.parametrize("code", [1, 137])
def test_a_lost_driver_is_tried_again(bench: Bench, code: int) -> None:
    bench.ledger(None)
    task = operator()
    assert task.retries >= 1
    with pytest.raises(EosError, match="The next try continues") as raised:
        bench.submit(task, f"exit {code}")
    assert not isinstance(raised.value, AirflowException)


def test_a_job_that_ends_well_without_completing_is_no_success(bench: Bench) -> None:
    bench.ledger(None, None)
    bench.context["task_state_store"].set("spark_job_id", "driver-1")
    with pytest.raises(EosError, match="is not complete"):
        bench.submit(operator(), "exit 0")
    assert bench.context["task_state_store"].get("spark_job_id") is None  # or the next try would not submit anything


def test_killing_the_task_ends_a_driver_below_the_launcher() -> None:
    task = operator()
    launcher = subprocess.Popen([sys.executable, "-c", "import subprocess; subprocess.run(['sleep', '60'])"])
    try:
        deadline = time.monotonic() + 60
        while not (below := psutil.Process(launcher.pid).children()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        task._hook = task._get_hook()
        task._hook._submit_sp = launcher
        task.on_kill()
        assert launcher.wait(timeout=60) != 0
        assert [identify(process.pid) for process in below] == [None] * len(below)
    finally:
        launcher.kill()
        launcher.wait(timeout=60)


DAY_2 = "2013-01-02T05:00:00Z/2013-01-03T05:00:00Z"
ASSETS = ["x-eos://eos-intervals/flights.daily"]


def mapped_task(way: str, mapped: Any, **kwargs: Any) -> Any:
    given = {"task_id": "write", "pipeline": "flights.daily", "python_callable": "package:flights", **kwargs}
    with DAG("flights", schedule=None):
        partial = IntervalRunOperator.partial(**given)
        return partial.expand(**mapped) if way == "expand" else partial.expand_kwargs(mapped)


@pytest.mark.parametrize(
    ("way", "mapped"),
    [
        ("expand", {"interval": [DAY, DAY_2]}),
        ("expand_kwargs", [{"interval": day, "op_kwargs": {"zone": "eu"}} for day in (DAY, DAY_2)]),
    ],
)
def test_mapped_tasks_have_the_asset_and_an_interval_each(bench: Bench, way: str, mapped: Any) -> None:
    task = mapped_task(way, mapped, outlets=[Asset("other")])
    assert [outlet.uri for outlet in task.outlets] == ["other", *ASSETS]
    own = task.unmap({"interval": DAY_2})
    assert [outlet.uri for outlet in own.outlets] == ["other", *ASSETS]
    assert task.retries == own.retries == operator().retries
    bench.context["ti"].map_index = 1
    bench.ledger(done())
    assert own.execute(bench.context)["interval"] == DAY_2


@pytest.mark.parametrize(
    ("way", "mapped"),
    [
        ("expand", {"op_kwargs": [{"zone": "eu"}, {"zone": "us"}]}),
        ("expand", {"interval": [DAY], "op_kwargs": [{"zone": "eu"}, {"zone": "us"}]}),
        ("expand_kwargs", [{"interval": DAY, "op_kwargs": {"zone": zone}} for zone in ("eu", "us")]),
    ],
)
def test_mapped_tasks_of_one_interval_are_refused_when_the_dag_is_read(way: str, mapped: Any) -> None:
    with pytest.raises(ConfigurationError, match="one interval of one pipeline"):
        mapped_task(way, mapped)


def test_a_pipeline_cannot_be_mapped_because_its_asset_would_not_be_known() -> None:
    with pytest.raises(ConfigurationError, match="without a pipeline"):
        IntervalRunOperator.partial(task_id="write", python_callable="package:flights")


def test_a_mapped_task_with_the_interval_of_the_dag_run_is_refused(bench: Bench) -> None:
    """As in a mapped task group, or of a decorated function."""
    bench.context["ti"].map_index = 0
    with pytest.raises(AirflowFailException, match="one interval of one pipeline"):
        operator().execute(bench.context)


@pytest.mark.parametrize(
    ("interval", "accepted"),
    [(DAY, False), ("{{ params.interval }}", False), ("{{ params.intervals[ti.map_index] }}", True)],
)
def test_tasks_of_a_mapped_group_need_an_interval_each(bench: Bench, interval: str, accepted: bool) -> None:
    task = operator(interval=interval)
    task.interval = DAY  # as Airflow renders it
    bench.context["ti"].map_index = 0
    bench.ledger(done())
    if accepted:
        assert task.execute(bench.context)["already"] is True
    else:
        with pytest.raises(AirflowFailException, match="one interval of one pipeline"):
            task.execute(bench.context)


def test_mapped_tasks_whose_intervals_come_from_another_task_are_compared_when_they_run(bench: Bench) -> None:
    with DAG("flights", schedule=None):

        @task
        def runs() -> list[dict[str, Any]]: ...

        given = {"task_id": "write", "pipeline": "flights.daily", "python_callable": "package:flights"}
        mapped = IntervalRunOperator.partial(**given).expand_kwargs(runs())
    own = mapped.unmap({"interval": DAY})
    for second, accepted in ((DAY_2, True), (DAY, False)):
        found = [{"interval": DAY, "op_kwargs": {"zone": "eu"}}, {"interval": second, "op_kwargs": {"zone": "us"}}]
        bench.context["ti"].map_index, bench.context["ti"].xcom_pull = 0, lambda found=found, **_: found
        bench.ledger(done())
        if accepted:
            assert own.execute(bench.context)["already"] is True
        else:
            with pytest.raises(AirflowFailException, match="2 mapped tasks for 1 intervals"):
                own.execute(bench.context)


NEW_YORKS_DAYS = CronDataIntervalTimetable("0 0 * * *", timezone="America/New_York")

#: Its first run after a moment has the interval before that moment.
BEFORE_EACH_FIVE = CronTriggerTimetable("0 5 * * *", timezone="UTC", interval=timedelta(days=1))


@pytest.mark.parametrize(
    ("schedule", "interval", "by_bounds", "accepted"),
    [
        (NEW_YORKS_DAYS, DAY, False, True),
        (NEW_YORKS_DAYS, "2013-03-10T05:00:00Z/2013-03-11T04:00:00Z", False, True),
        (NEW_YORKS_DAYS, "2013-01-01T05:00:00Z/2013-01-03T05:00:00Z", False, False),
        (NEW_YORKS_DAYS, "2013-01-01T05:00:00Z/2013-01-01T06:00:00Z", False, False),
        (NEW_YORKS_DAYS, "2013-01-01T05:00:00Z/2013-01-03T05:00:00Z", True, True),
        (BEFORE_EACH_FIVE, DAY, False, True),
        (BEFORE_EACH_FIVE, "2013-01-01T05:00:00Z/2013-01-03T05:00:00Z", False, False),
        ("@daily", "2013-01-01T05:00:00Z/2013-01-03T05:00:00Z", False, True),
        (None, "2013-01-01T05:00:00Z/2013-01-03T05:00:00Z", False, True),
    ],
)
def test_a_function_that_answers_days_is_given_no_other_interval(
    bench: Bench, schedule: Any, interval: str, by_bounds: bool, accepted: bool
) -> None:
    bench.ledger(None, done())
    with DAG("flights", schedule=schedule, start_date=datetime(2013, 1, 1, tzinfo=UTC)):
        task = operator(interval=interval, selects_by_bounds=by_bounds)
    if accepted:
        bench.submit(task, "exit 0")
    else:
        with pytest.raises(AirflowFailException, match="not one of the DAG's schedule"):
            bench.submit(task, "exit 0")


def dag_run(start: datetime | None, end: datetime | None) -> dict[str, Any]:
    return {"dag_run": SimpleNamespace(run_id="manual__1", data_interval_start=start, data_interval_end=end)}


def test_a_run_by_hand_without_an_interval_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigurationError, match=r"manual__1 has no data interval(.|\n)*params\.interval"):
        interval_of(dag_run(None, None), None)


def test_an_interval_without_width_is_refused_with_the_timetable_that_has_one() -> None:
    moment = datetime(2013, 1, 1, tzinfo=UTC)
    words = r"no width(.|\n)*CronDataIntervalTimetable(.|\n)*already has(.|\n)*change of the clocks"
    with pytest.raises(ConfigurationError, match=words):
        interval_of(dag_run(moment, moment), None)


@pytest.mark.parametrize("given", [DAY, "2013-01-01T00:00:00-05:00/2013-01-02T00:00:00-05:00"])
def test_an_interval_that_is_given_wins_and_is_made_canonical(given: str) -> None:
    assert interval_of(dag_run(None, None), given).name == DAY


@pytest.mark.parametrize("given", ["2013-01-01", "yesterday/today", "2013-01-01T00:00:00/2013-01-02T00:00:00"])
def test_an_interval_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(ConfigurationError):
        interval_of(dag_run(None, None), given)


def test_a_configuration_error_fails_the_task_for_good(bench: Bench, context: dict[str, Any]) -> None:
    context |= dag_run(None, None)
    with pytest.raises(AirflowFailException, match="has no data interval"):
        operator().execute(context)


@pytest.mark.parametrize(("deploy_mode", "named"), [("client", "/tmp/spec.json"), ("cluster", "spec.json")])
def test_the_job_removes_its_specification_wherever_it_runs(deploy_mode: str, named: str) -> None:
    task = operator()
    task._hook = SimpleNamespace(_connection={"deploy_mode": deploy_mode}, _files=None, _application_args=None)
    task._hand_over(Path("/tmp/spec.json"))
    assert task._hook._application_args == ["--delete-spec", "--spec", named]
    assert task._hook._files == ("/tmp/spec.json" if deploy_mode == "cluster" else None)


def test_a_standalone_cluster_is_not_asked_for_a_driver_in_python(bench: Bench) -> None:
    bench.ledger(None)
    spark = {"conn_type": "spark", "host": "spark://spark-1", "port": 7077, "extra": {"deploy-mode": "cluster"}}
    bench.spark(spark)
    with pytest.raises(AirflowFailException, match="asks for deploy mode cluster on spark://spark-1:7077"):
        bench.submit(operator(), "exit 0")


_HOLDS_A_FILE = """
import sys
from airflow_eos_provider.operators.interval_run import secret_file
with secret_file({"password": "x"}) as path:
    print(path, flush=True)
    sys.stdin.read()
"""


def test_the_file_of_a_killed_task_is_removed_by_the_next_and_that_of_a_living_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    tasks = [
        subprocess.Popen(
            [sys.executable, "-c", _HOLDS_A_FILE],
            stdin=subprocess.PIPE,  # it ends with this one, at the latest
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(2)
    ]
    try:
        killed, living = [Path(task.stdout.readline().strip()) for task in tasks if task.stdout]
        tasks[0].kill()
        tasks[0].wait(timeout=60)
        assert killed.exists()
        with secret_file({}) as ours:
            assert sorted(tmp_path.iterdir()) == sorted([living, ours])
    finally:
        for task in tasks:
            task.kill()
            task.communicate(timeout=60)


def test_the_secret_file_goes_away_when_the_job_fails() -> None:
    seen = []

    def fail() -> None:
        with secret_file({"a": 1}) as path:
            seen.append((path, stat.S_IMODE(path.stat().st_mode)))
            raise OSError("the job failed")

    with pytest.raises(OSError, match="the job failed"):
        fail()
    ((path, mode),) = seen
    assert mode == 0o600
    assert not path.exists()


def test_the_operator_keeps_the_exit_codes_that_the_job_ends_with() -> None:
    assert {2, 3, 7} == interval_run._FINAL_EXIT_CODES


def test_a_connection_to_a_shared_server_needs_no_submission_and_a_kill_ends_the_tasks_there(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a real server: tests/integration/test_spark_connect.py."""
    shared = {"conn_type": "spark_connect", "host": "server", "port": 15002, "password": "t0ken"}
    bench.spark(shared)
    monkeypatch.setenv("PATH", "/nowhere")
    ended: list[str] = []
    monkeypatch.setattr("airflow_eos_provider.interval.spark.sessions.interrupt", lambda: ended.append("tasks"))
    task = operator(slices=3)

    def run(specification: Any, report: Callable[[str], None]) -> None:
        assert specification.spark == {"spark.remote": "sc://server:15002/;token=t0ken"}
        assert (specification.slices, specification.function) == (3, "package:flights")
        assert "t0ken" not in repr(specification)
        task.on_kill()

    monkeypatch.setattr("airflow_eos_provider.interval.spark.job.run", run)
    bench.ledger(None, done(7))
    assert task.execute(bench.context)["records"] == 7
    assert ended == ["tasks"]
