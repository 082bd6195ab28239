"""One interval of a pipeline, written into Kafka exactly once by a Spark job.

The ledger in Kafka decides which intervals are complete, not Airflow. It is read before Spark is started, so that a
finished interval costs no Spark at all, and again at the end, so that a task never succeeds before its interval is
complete. So retries, clears and two Airflow workers that both claim the task are harmless: the second one finds the
finished slices, or is fenced.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from airflow.sdk import Asset, BaseHook, BaseOperator, XComArg
from airflow.sdk.definitions.mappedoperator import OperatorPartial
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_eos_provider.assets.intervals import SCHEME, interval_asset
from airflow_eos_provider.errors import ConfigurationError, EosError, FencedError, RefusedError
from airflow_eos_provider.hooks.pipeline import (
    DEFAULT_KAFKA_CONN_ID,
    find_pipeline,
    require_of_schedule,
    run_of,
)
from airflow_eos_provider.interval.interval import DEFAULT_GROUP_ID
from airflow_eos_provider.links.operator_links import IntervalPageLink, SparkPageLink, show
from airflow_eos_provider.links.page import interval_url, shown_url
from airflow_eos_provider.local_processes import ProcessIdentity, identify
from airflow_eos_provider.metrics import of_interval
from airflow_eos_provider.operators.failures import no_retry_where_pointless
from airflow_eos_provider.public_names import without_extra
from airflow_eos_provider.stored import from_json, to_json

try:
    from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
except ModuleNotFoundError as error:
    raise without_extra("An interval run in Airflow", "spark", error) from error

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from airflow_eos_provider.interval.interval import Run
    from airflow_eos_provider.interval.messages import Completed
    from airflow_eos_provider.interval.pipeline import Pipeline
    from airflow_eos_provider.interval.spark.job import JobSpec

#: A lost worker or driver is made up for by the next try, which goes on with the slices that are left.
RUN_RETRIES = 3
RUN_RETRY_DELAY = timedelta(seconds=10)

#: In a template: what differs between mapped tasks.
_OWN_TEXT = re.compile(r"\b(?:map_index|task|ti|task_instance)\b")

#: What the names of files begin with that hand a job its specification, and so its login.
_SECRET_FILE = "eos-interval-"

#: The program that is submitted, if the task names no other.
_JOB = str(Path(__file__).parents[1] / "interval" / "spark" / "job.py")

_YARN_ATTEMPTS = "spark.yarn.maxAppAttempts"

_DRIVER_PYTHON = "spark.pyspark.driver.python"

#: Brings a variable to a driver's pod; it is in the pod's description, where others can read it.
_K8S_SPECIFICATION = "spark.kubernetes.driverEnv.EOS_INTERVAL_SPEC"

#: What spark-submit says of a driver that YARN runs: which application it is, and how its program has ended.
_YARN_WORDS = re.compile(r"(?P<application>application_\d+_\d+)|User application exited with status (?P<code>\d+)")

#: What reading a line raises that was cut short on its way.
_CUT_SHORT = (EosError, ValueError, KeyError, TypeError, AttributeError)

#: Exit codes of the job after which a retry would only repeat the message, or fence the run that won.
_FINAL_EXIT_CODES = frozenset(error.exit_code for error in (ConfigurationError, RefusedError, FencedError))


class IntervalRun(BaseOperator):
    """What every task that writes an interval has: the pipeline, the interval, the asset, the summary.

    :param pipeline: name of the pipeline.
    :param group_id: the group that it belongs to; never that of a Connect cluster.
    :param kafka_conn_id: a connection of type ``kafka`` or ``kafka_connect``.
    :param topic: where records go that name no topic themselves.
    :param interval: ``start/end`` in ISO 8601 with offsets (templated), one of the DAG's schedule unless
        ``selects_by_bounds``; without it the DAG run's data interval.
    :param revision: 2 and more write a complete interval once again, on purpose (templated).
    :param slices: how many slices the interval is divided into.
    :param key: the columns that a row's slice is taken from; they must be the same whenever a row is read.
    :param slices_by: ``key``, the slice is taken from its hash; or ``partitions``: those of the DataFrame are slices,
        whatever ``key`` and ``slices`` are.
    :param spark_parallelism: how many Spark tasks write at once, at most; without it Spark's parallelism decides.
    :param pin_inputs: hold the files that the DataFrame reads to what they were when the interval was begun; a retry
        that finds others fails, and names them.
    :param selects_by_bounds: the function returns all rows from the interval's start to its end, however wide the
        interval is. Then the intervals within a complete one are complete, too, and ``interval`` may be any. Leave it
        out if the function reads a path or a partition that is named by the start alone.
    :param allow_before_end: write the interval although it has not ended. Rows that come later are never written.
    :param pipeline_options: further fields of :class:`~airflow_eos_provider.interval.pipeline.Pipeline`.
    :param retries: tries after the first; each continues with the remaining slices.
    :param retry_delay: time between two tries.
    """

    template_fields: Sequence[str] = ("kafka_conn_id", "topic", "interval", "revision")
    operator_extra_links = (IntervalPageLink(), SparkPageLink())

    def __init__(
        self,
        *,
        pipeline: str,
        group_id: str = DEFAULT_GROUP_ID,
        kafka_conn_id: str = DEFAULT_KAFKA_CONN_ID,
        topic: str | None = None,
        interval: str | None = None,
        revision: int | str = 1,
        slices: int = 4,
        key: str | Sequence[str] = "key",
        slices_by: str = "key",
        spark_parallelism: int | None = None,
        pin_inputs: bool = True,
        selects_by_bounds: bool = False,
        allow_before_end: bool = False,
        pipeline_options: Mapping[str, Any] | None = None,
        retries: int = RUN_RETRIES,
        retry_delay: timedelta = RUN_RETRY_DELAY,
        **kwargs: Any,
    ) -> None:
        retried = {"retries": retries, "retry_delay": retry_delay}
        super().__init__(**with_asset(pipeline, group_id, {**kwargs, **retried}))
        self.pipeline = pipeline
        self.group_id = group_id
        self.kafka_conn_id = kafka_conn_id
        self.topic = topic
        self.interval = interval
        self._interval_given = interval  # as the DAG has it, before templates are rendered
        self.revision = revision
        self.slices = slices
        self.key = key
        self.slices_by = slices_by
        self.spark_parallelism = spark_parallelism
        self.pin_inputs = pin_inputs
        self.selects_by_bounds = selects_by_bounds
        self.allow_before_end = allow_before_end
        self.pipeline_options = pipeline_options
        self._told: tuple[Pipeline, Run, Mapping[str, Any], Mapping[str, int]] | None = None

    @classmethod
    def partial(cls, **kwargs: Any) -> OperatorPartial:
        """As every operator's. ``expand`` may map ``interval`` and ``revision``, ``expand_kwargs`` also others."""
        if "pipeline" not in kwargs:
            raise ConfigurationError(
                f"{cls.__name__}.partial() is called without a pipeline.",
                expected="the pipeline: Airflow has to know its asset when it parses the DAG",
                remedy="Give it in partial(), and write a task for each pipeline.",
            )
        kwargs = with_asset(kwargs["pipeline"], kwargs.get("group_id", DEFAULT_GROUP_ID), kwargs)
        of_airflow = super().partial(**kwargs)
        of_airflow._expand_called = True  # the one that is returned is mapped in its place
        return _IntervalPartial(operator_class=cls, kwargs=of_airflow.kwargs, params=of_airflow.params)

    def find_pipeline(self) -> Pipeline:
        return find_pipeline(
            self.pipeline,
            group_id=self.group_id,
            kafka_conn_id=self.kafka_conn_id,
            topic=self.topic,
            options=self.pipeline_options,
        )

    def run_of(self, context: Context) -> Run:
        """The run that this task is for."""
        return run_of(context, self.pipeline, self.interval, self.revision)

    def write(self, context: Context, pipeline: Pipeline, run: Run) -> Completed | None:
        """Write the missing slices and complete the run."""
        raise NotImplementedError

    def forget_job(self, context: Context) -> None:
        """Called when a job that succeeded did not complete the run, so that the next try starts another one."""

    def write_once(self, context: Context) -> dict[str, Any]:
        """Complete the run, unless it is complete.

        :returns: the summary: ``run``, ``interval``, ``revision``, ``records``, ``digest``, ``slices``, ``already``,
            ``seconds``, ``part_of``, and ``metrics``: what was moved and how long each part took, with an entry a task;
            None if a version completed the run that did not say. ``part_of`` is None, or the run of a wider interval
            that wrote this one; then ``records``, ``digest``, ``slices`` and ``metrics`` are None, for nothing of the
            part alone is on record.
        :raises AirflowFailException: a person has to act first.
        """
        from airflow_eos_provider.interval.verify import completion

        started = time.monotonic()
        with no_retry_where_pointless():
            self._require_interval_of_its_own(context)
            run = self.run_of(context)
            pipeline = self.find_pipeline()
            page = interval_url(self.kafka_conn_id, self.group_id, self.pipeline, run.name)
            show(self, context, IntervalPageLink(), page)
            done = completion(pipeline, run)
            already, job = done is not None, None
            if done is None:
                self.log.info("%s is not complete", run.name)
                run.interval.require_ended(self.allow_before_end)
                if self.interval and not self.selects_by_bounds:
                    require_of_schedule(self.get_dag(), run.interval)
                job = self.write(context, pipeline, run)
                # To the end: another interval's open transaction may precede our `complete`.
                done = completion(pipeline, run, wait=True)
            if done is None:
                self.forget_job(context)
                raise EosError(
                    f"The job succeeded, but {run.name} is not complete.",
                    remedy="See the job's log. The next try continues with the remaining slices.",
                )
        if done.run == run:
            self.log.info("%s is complete: %s records in %s slices", run.name, f"{done.records:,}", done.slices)
            for line in () if done.summary is None else done.summary.lines():
                self.log.info("%s: %s", run.name, line)
        else:
            self.log.info("%s is complete, as a part of %s", run.name, done.run.name)
        summary = _summary(done, run, already, time.monotonic() - started, job)
        of_interval(summary, pipeline=self.pipeline, group_id=self.group_id)
        self._told = (pipeline, run, summary, {} if job is None or job.run != run else job.inputs)
        self._announce(context, summary)
        return summary

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """OpenLineage facets: the folders that the plan pinned, the topic, and the interval."""
        from airflow_eos_provider.lineage import events

        return None if self._told is None else events.of_interval(*self._told)

    def _require_interval_of_its_own(self, context: Context) -> None:
        """Refuse a mapped task that has the interval of another mapped task."""
        index = getattr(context["ti"], "map_index", None)
        if index is None or index < 0:
            return
        if not self.interval:
            raise _one_interval(f"Mapped task {index} of {self.task_id} has the interval of the DAG run")
        dag = self.get_dag()
        mapped = getattr(getattr(dag and dag.get_task(self.task_id), "expand_input", None), "value", None)
        if isinstance(mapped, XComArg):
            _require_distinct(self.task_id, mapped.resolve(context))
        elif isinstance(mapped, Mapping | None) and "interval" not in (mapped or ()):  # of a function, or in a group
            given = self._interval_given
            if isinstance(given, str) and not _OWN_TEXT.search(given):
                raise _one_interval(f"Mapped task {index} of {self.task_id} has the interval of all, {given}")

    def _announce(self, context: Context, summary: Mapping[str, Any]) -> None:
        asset = interval_asset(self.pipeline, self.group_id)
        told = {name: summary[name] for name in ("interval", "revision", "records", "digest", "already", "part_of")}
        context["outlet_events"][asset].extra.update({"pipeline": self.pipeline, "group_id": self.group_id, **told})


def with_asset(pipeline: str, group_id: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """A task's arguments, whose outlets have this pipeline's asset and no other pipeline's.

    Airflow has to know it when it parses the DAG, so neither the pipeline nor the group can be templates or mapped.
    """
    others = (
        outlet
        for outlet in kwargs.get("outlets") or ()
        if not (isinstance(outlet, Asset) and outlet.uri.startswith(f"{SCHEME}:"))
    )
    return {**kwargs, "outlets": [*others, interval_asset(pipeline, group_id)]}


class _IntervalPartial(OperatorPartial):
    """Refuses a mapping whose tasks would share an interval: the first would write it, and the others nothing."""

    def _expand(self, expand_input: Any, *, strict: bool) -> Any:
        self._expand_called = True
        mapped = expand_input.value
        if isinstance(mapped, Mapping):  # each of its lists is combined with each other
            if not {"interval"} <= mapped.keys() <= {"interval", "revision"}:
                raise _one_interval(f"{self.kwargs['task_id']} is mapped over {', '.join(mapped)}")
        elif isinstance(mapped, Sequence):
            _require_distinct(self.kwargs["task_id"], mapped)
        return super()._expand(expand_input, strict=strict)


def _require_distinct(task_id: str, mapped: Sequence[Any]) -> None:
    """Refuse mapped tasks of which two have one interval; some may be known only when they run."""
    known = [one for one in mapped if isinstance(one, Mapping)]
    runs = {f"{one.get('interval')} {one.get('revision', 1)}" for one in known}
    if len(runs) < len(known):
        raise _one_interval(f"{task_id} has {len(known)} mapped tasks for {len(runs)} intervals")


def _one_interval(found: str) -> ConfigurationError:
    return ConfigurationError(
        f"{found}, so several tasks would write one interval of one pipeline: the first writes it, the others nothing.",
        expected="mapped tasks that each have an interval of their own",
        remedy="Map over interval (with other arguments: expand_kwargs). To write parts of one interval, such as "
        "regions, give each part its own pipeline.",
    )


class IntervalRunOperator(IntervalRun, SparkSubmitOperator):
    """Write one interval by ``spark-submit``, on the cluster of the Spark connection.

    With a connection of type ``spark_connect`` nothing is submitted: the task's own process is the run's coordinator,
    and the tasks run on the server that all days of a backfill share. What only a submission has is then left unused.

    Everything that :class:`SparkSubmitOperator` takes can be given too. Credentials travel in a file that only this
    user may read, never on a command line.

    After a killed driver, a lost executor or a lost Airflow worker, the next try writes the remaining slices. If
    another driver fences the run, the task fails without a retry: two that retry would fence each other for ever.

    :param python_callable: a function at the top level of a module, ``"package.module:function"`` or
        ``"/path/of/file.py:function"``. The Spark job imports it, so a package has to be installed where the driver
        runs; a function of a module without a package, such as the DAG file, is read from that file. It is called as
        ``function(spark, interval, **op_kwargs)`` and returns a DataFrame with the columns ``key``, ``value`` and,
        if wanted, ``headers``, ``topic``, ``partition``, ``timestamp``.
    :param op_kwargs: further arguments of the function; JSON values (templated).
    :param client_file: a Kafka client's properties file, as Java's clients and ``--command-config`` take it, on the
        driver's machine (templated). The job's login is what it says, and the connection's is not sent. A driver on
        Kubernetes gets a login in no other way.
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        *IntervalRun.template_fields,
        "op_kwargs",
        "client_file",
    )

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any] | str,
        op_kwargs: Mapping[str, Any] | None = None,
        client_file: str | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("application", _JOB)
        super().__init__(**kwargs)
        self.name = kwargs.get("name") or f"eos-{self.pipeline}"
        self.python_callable = _callable_name(python_callable)
        self.op_kwargs = op_kwargs
        self.client_file = client_file
        self._heard = JobWords()
        self._writes_remotely = False

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the base's returns nothing
        return self.write_once(context)

    def write(self, context: Context, pipeline: Pipeline, run: Run) -> Completed | None:
        from airflow_eos_provider.interval.spark.job import JobSpec

        specification = JobSpec(
            pipeline=pipeline,
            interval=run.interval,
            function=self.python_callable,
            arguments=dict(self.op_kwargs or {}),
            revision=run.revision,
            slices=self.slices,
            tasks=self.spark_parallelism,
            pin_inputs=self.pin_inputs,
            selects_by_bounds=self.selects_by_bounds,
            allow_before_end=self.allow_before_end,
            slices_by=self.slices_by,
            key=(self.key,) if isinstance(self.key, str) else tuple(self.key),
            client_file=self.client_file or None,
        )
        if self._is_shared():
            return self._write_remotely(specification)
        self._heard = JobWords(lambda url: show(self, context, SparkPageLink(), shown_url(url)))
        self._hook = self._get_hook()
        with self._handed_over(specification):
            try:
                SparkSubmitOperator.execute(self, context)
            except (AirflowException, RuntimeError) as error:  # the latter of an application that YARN was asked about
                raise self._explain(run, error) from error
        return self._heard.completed

    def _is_shared(self) -> bool:
        """Whether the Spark connection is a server's, through Spark Connect."""
        try:
            return bool(BaseHook.get_connection(self._conn_id).conn_type == SparkConnectHook.conn_type)
        except AirflowException:  # there is none, for which the hook of spark-submit has an answer
            return False

    def _write_remotely(self, specification: JobSpec) -> Completed:
        """Write through a session of the Spark Connect server."""
        from airflow_eos_provider.interval.spark.job import run

        self._writes_remotely = True
        remote = SparkConnectHook(self._conn_id).get_connection_url()
        return run(
            replace(specification, spark={"spark.remote": remote}), report=lambda line: self.log.info("%s", line)
        )

    def forget_job(self, context: Context) -> None:
        """A job that succeeded is not submitted again by :class:`ResumableJobMixin`, whatever the ledger says."""
        store = context.get("task_state_store")
        if store is not None:
            for key in (self.external_id_key, self._K8S_DRIVER_STATUS_KEY):
                store.delete(key)

    def on_kill(self) -> None:
        """End the submission, and with it a driver that runs on this machine; or the Spark jobs on a shared server."""
        if self._writes_remotely:
            end_spark_jobs()
            return
        drivers = self._local_processes()
        super().on_kill()
        for process in drivers:  # killing the launcher alone would leave its Python driver behind
            process.stop(kill=True)

    def _get_hook(self) -> SparkSubmitHook:
        try:
            hook = super()._get_hook()
        except NameError as error:  # of the base's own, which uses what it could not import
            if error.name != "kube_client":
                raise
            raise ConfigurationError(
                "The Spark connection names Kubernetes, and Airflow's provider for that is not installed.",
                remedy="Install apache-airflow-providers-cncf-kubernetes on the Airflow workers.",
            ) from error
        read = hook._process_spark_submit_log
        hook._process_spark_submit_log = lambda itr: read(self._heard.watch(itr))  # type: ignore[method-assign]
        _refuse_standalone_cluster_mode(hook)
        if hook._connection["master"].startswith("local"):
            # PySpark's workers are otherwise started by whatever python3 is first on the PATH.
            hook._env_vars = {"PYSPARK_PYTHON": sys.executable, **(hook._env_vars or {})}
        here = {**os.environ, **(hook._env_vars or {})}
        if not self._master_of_driver(hook) and "PYSPARK_DRIVER_PYTHON" not in here:
            # Otherwise the driver, here, would run the interpreter that spark.pyspark.python names for the executors.
            hook._conf = {_DRIVER_PYTHON: sys.executable, **(hook._conf or {})}
        return hook

    def _handed_over(self, specification: JobSpec) -> AbstractContextManager[None]:
        """Give the job its specification; what holds a login, in a file that only this user may read."""
        assert self._hook is not None
        document, master = specification.to_dict(), self._master_of_driver(self._hook)
        if "yarn" in master:
            # Another attempt of YARN's would fence whoever has fenced this one. Airflow's next try asks first.
            self._hook._conf = {_YARN_ATTEMPTS: "1", **(self._hook._conf or {})}
            if not self._hook._yarn_track_via_rm_api:
                self.durable = False  # the base refuses it there; the next try fences the driver of this one
        if "k8s" in master:
            _refuse_to_upload(specification, master)
            if self.application.startswith("local:"):  # it is in the image, so nothing has to be uploaded
                self._hook._conf = {**(self._hook._conf or {}), _K8S_SPECIFICATION: json.dumps(document)}
                self._hook._application_args = []
                return contextlib.nullcontext()
        return self._within_program(document) if master and self.application == _JOB else self._in_file(document)

    @contextmanager
    def _in_file(self, document: Mapping[str, Any]) -> Iterator[None]:
        with secret_file(document) as path:
            self._hand_over(path)
            yield

    @contextmanager
    def _within_program(self, document: Mapping[str, Any]) -> Iterator[None]:
        """A program with the specification in it: Spark brings that to the driver alone, and ``--files`` to each
        executor's machine, where YARN keeps it when the application has ended."""
        from airflow_eos_provider.interval.spark.job import program

        assert self._hook is not None
        with secret_file(document, program, ".py") as path:
            self._hook._application_args = []
            self.application = str(path)
            try:
                yield
            finally:
                self.application = _JOB

    @staticmethod
    def _master_of_driver(hook: SparkSubmitHook) -> str:
        """The cluster that is to run the driver; empty if that runs where it is submitted."""
        return str(hook._connection["master"]) if hook._connection["deploy_mode"] == "cluster" else ""

    def _hand_over(self, path: Path) -> None:
        assert self._hook is not None
        in_cluster = self._hook._connection["deploy_mode"] == "cluster"
        if in_cluster:  # Spark brings a copy into the driver's working directory
            self._hook._files = ",".join(filter(None, (self.files, str(path))))
        # The job removes the file as soon as it has read it: a task that is killed could not, nor the cluster.
        self._hook._application_args = ["--delete-spec", "--spec", path.name if in_cluster else str(path)]

    def _local_processes(self) -> list[ProcessIdentity]:
        submission = getattr(self._hook, "_submit_sp", None)
        if submission is None or submission.poll() is not None:
            return []
        try:
            below = psutil.Process(submission.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [identity for process in below if (identity := identify(process.pid)) is not None]

    def _explain(self, run: Run, error: Exception) -> Exception:
        self._heard.take_from_yarn(str(error))
        if code := getattr(self._hook, "_spark_exit_code", None):
            self._heard.take_from_kubernetes(code, getattr(self._hook, "_kubernetes_driver_pod", None))
        submission = getattr(self._hook, "_submit_sp", None)
        code = self._heard.exit_code or (submission.returncode if submission is not None else None)
        reason = self._heard.reason or str(error)
        if code == FencedError.exit_code:
            return AirflowFailException(
                f"{run.name} was taken over by another run of the same interval: {reason}\n"
                "It is not retried, because two runs that retry fence each other forever. Check whether the other "
                "run ends."
            )
        if code in _FINAL_EXIT_CODES:
            return AirflowFailException(reason)
        return EosError(
            f"The Spark job of {run.name} ended with code {code}: {reason}",
            remedy="See its log above. The next try continues with the remaining slices.",
        )


def _callable_name(function: Callable[..., Any] | str) -> str:
    """The name by which a Spark job imports a function."""
    if isinstance(function, str):
        return function
    module, name = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", "")
    holder = sys.modules.get(module)
    if getattr(holder, name, None) is not function:
        raise ConfigurationError(
            f"python_callable is {name or f'a {type(function).__name__}'}, which a Spark job cannot import by name.",
            expected='a function at the top level of a module (no lambda, nested function or method), or "module:name"',
            remedy="Move it to the top level of a module.",
        )
    file = Path(getattr(holder, "__file__", None) or "__init__.py")
    places = sysconfig.get_paths()
    is_installed = any(file.is_relative_to(places[each]) for each in ("stdlib", "purelib", "platlib"))
    if "." in module or file.name == "__init__.py" or is_installed:
        return f"{module}:{name}"
    return f"{file.resolve()}:{name}"  # a DAG file, or a module beside it: no driver has that on its path


def end_spark_jobs() -> None:
    """End the Spark jobs that this process waits for, so that they do not go on in a session that others share."""
    sessions = sys.modules.get("airflow_eos_provider.interval.spark.sessions")
    if sessions is not None:  # else there are none, and a signal handler is no place to import pyspark
        sessions.interrupt()


def _refuse_standalone_cluster_mode(hook: SparkSubmitHook) -> None:
    """Spark refuses it, too, in the midst of its log."""
    connection = hook._connection
    if connection["deploy_mode"] == "cluster" and connection["master"].startswith("spark://"):
        raise ConfigurationError(
            f"The Spark connection asks for deploy mode cluster on {connection['master']}.",
            expected="client: a standalone cluster of Spark runs no driver in Python",
            remedy="Set the connection's deploy-mode to client; the task's process is the driver then.",
        )


def _refuse_to_upload(specification: JobSpec, master: str) -> None:
    """Nobody ever removes what spark-submit has uploaded for a driver on Kubernetes."""
    if specification.secrets:
        raise ConfigurationError(
            f"The driver is to run on Kubernetes ({master}), and the Kafka connection has a login "
            f"({', '.join(specification.secrets)}). It would stay in spark.kubernetes.file.upload.path.",
            expected="a login that is in the driver's pod already",
            remedy="Mount a Secret with a client's properties file into the driver "
            "(spark.kubernetes.driver.secrets.NAME=/path) and set client_file to that file; or set the Spark "
            "connection's deploy-mode to client.",
        )


class JobWords:
    """What a job says of its end, picked from among Spark's lines.

    :param on_page: called with the address of Spark's own page of the driver.
    :ivar reason: the job's own error, if it reported one.
    :ivar exit_code: the job's own; where the driver runs in the cluster, spark-submit has another, and YARN says this.
    :ivar completed: what it has completed, if it says so. The ledger decides; this has the figures of its tasks.
    """

    def __init__(self, on_page: Callable[[str], None] = lambda url: None) -> None:
        self._on_page = on_page
        self.reason: str | None = None
        self.exit_code: int | None = None
        self.completed: Completed | None = None
        self._application = ""

    def watch(self, lines: Iterable[str]) -> Iterator[str]:
        """Pass the lines on."""
        from airflow_eos_provider.interval.spark.job import FAILURE_PREFIX, PAGE_PREFIX, RESULT_PREFIX

        for line in lines:
            with contextlib.suppress(*_CUT_SHORT):
                if FAILURE_PREFIX in line:
                    document = json.loads(line.partition(FAILURE_PREFIX)[2])
                    self.reason, self.exit_code = str(document["message"]), int(document["exit_code"])
                elif RESULT_PREFIX in line:
                    self._take(json.loads(line.partition(RESULT_PREFIX)[2]))
                elif PAGE_PREFIX in line:
                    self._on_page(str(json.loads(line.partition(PAGE_PREFIX)[2])["url"]))
                else:
                    self.take_from_yarn(line)
            yield line

    def take_from_yarn(self, text: str) -> None:
        """A driver's own words stay in its container there; its exit code comes back."""
        for found in _YARN_WORDS.finditer(text):
            self._application = found["application"] or self._application
            if found["code"] and self.exit_code is None:
                self.exit_code = int(found["code"])
                where = f"yarn logs -applicationId {self._application}"
                self.reason = f"The driver in the cluster ended with code {found['code']}. Its log says why: {where}"

    def take_from_kubernetes(self, code: int, pod: str | None) -> None:
        """As of YARN: the driver's words stay in its pod, and spark-submit says its exit code."""
        if self.exit_code is None:
            self.exit_code = code
            where = f"kubectl logs {pod or '<driver pod>'}"
            self.reason = f"The driver on Kubernetes ended with code {code}. Its log says why: {where}"

    def _take(self, document: Mapping[str, Any]) -> None:
        from airflow_eos_provider.interval.messages import Completed

        self.completed = from_json(Completed, document)


@contextmanager
def secret_file(
    document: Mapping[str, Any], text_of: Callable[[Mapping[str, Any]], str] = json.dumps, suffix: str = ".json"
) -> Iterator[Path]:
    """A file for a job on this machine or to be shipped to it, readable by this user only, gone afterwards.

    It is locked while the task lives. A task that is killed before its job has read the file cannot remove it; the next
    task on this machine does, by that lock.
    """
    _remove_files_of_the_dead()
    descriptor, path = _locked_file(suffix)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", closefd=False) as file:
            file.write(text_of(document))
        yield path
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _locked_file(suffix: str) -> tuple[int, Path]:
    """A new file, mode 0600, and the descriptor that holds its lock. Children do not inherit it (PEP 446)."""
    while True:
        descriptor, name = tempfile.mkstemp(prefix=_SECRET_FILE, suffix=suffix)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor, Path(name)
        os.close(descriptor)  # another task took it for a dead one's, before it was locked


def _remove_files_of_the_dead() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{_SECRET_FILE}*.*"):
        with contextlib.suppress(OSError), path.open("rb") as file:  # another user's, or just removed; or it is locked
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def _summary(done: Completed, run: Run, already: bool, seconds: float, job: Completed | None) -> dict[str, Any]:
    tasks = () if job is None or job.run != run else job.tasks
    metrics = None
    own = done if done.run == run else None
    if own is not None and own.summary is not None:
        metrics = {**to_json(own.summary), "tasks": to_json(tasks)}
    return {
        "run": run.name,
        "interval": run.interval.name,
        "revision": run.revision,
        "records": own and own.records,
        "digest": own and own.digest,
        "slices": own and own.slices,
        "already": already,
        "seconds": round(seconds, 3),
        "part_of": None if own else done.run.name,
        "metrics": metrics,
    }
