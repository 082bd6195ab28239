"""One interval as a Spark job: ``spark-submit … airflow_eos_provider/interval/spark/job.py --spec FILE``.

The job imports the user's function, calls it with the session and the interval, writes the result, and prints one line
for the submitter: ``EOS-INTERVAL-RESULT {…}``, or ``EOS-INTERVAL-FAILURE {…}`` and an exit code of
:mod:`airflow_eos_provider.errors` (7: another driver runs the interval now, so do not retry automatically).

Everything is in one JSON document, since it holds the Kafka client's credentials, which belong on no command line: a
file of mode 0600 (``--spec``; ``--files`` takes it to a driver in the cluster), a program that has it within
(:func:`program`, for a driver in YARN or on Kubernetes) or the variable ``EOS_INTERVAL_SPEC``.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Spark runs this file as a script, with its folder ahead on the path: there, 'interval' or 'task' would be found first.
if sys.path and sys.path[0] and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
    sys.path.pop(0)

import argparse
import importlib
import importlib.util
import inspect
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.interval.messages import Completed
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.spark.executors.python import choose_executor_python, daemon_property, master_of
from airflow_eos_provider.interval.spark.sessions import look_often, stop
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings, is_secret
from airflow_eos_provider.redaction import redact
from airflow_eos_provider.stored import members

#: What the lines begin with that the submitter looks for. Operators in the field read them: never change them.
RESULT_PREFIX = "EOS-INTERVAL-RESULT "
FAILURE_PREFIX = "EOS-INTERVAL-FAILURE "
PAGE_PREFIX = "EOS-INTERVAL-SPARK-PAGE "

#: The variable that may hold the specification instead of a file.
SPEC_VARIABLE = "EOS_INTERVAL_SPEC"

logger = logging.getLogger("airflow_eos_provider.interval")


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What a job does.

    :param function: ``package.module:function`` or ``/path/file.py:function``; called with ``spark`` and ``interval``
        (and ``arguments``), it returns a DataFrame of records, or what ``files_source`` returns.
    :param client_file: a Java client's properties file on the driver's machine: the job's Kafka client is what it says,
        and :meth:`to_dict` leaves out what ``pipeline`` says of that, but for the addresses.
    :param spark: Spark properties, for a job that no spark-submit has configured; ``spark.remote`` is the URL of a
        Spark Connect server, which may hold a token: never shown.
    """

    pipeline: Pipeline = field(repr=False)
    interval: Interval
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    revision: int = 1
    slices: int | None = None
    tasks: int | None = None
    key: tuple[str, ...] = ("key",)
    slices_by: str = "key"
    pin_inputs: bool = True
    selects_by_bounds: bool = False
    allow_before_end: bool = False
    client_file: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def secrets(self) -> list[str]:
        """Names of the client's properties in :meth:`to_dict` whose values are secret."""
        sent = self._sent
        properties = {**sent.kafka.properties, **sent.producer}
        return sorted(name for name, value in properties.items() if is_secret(name) and value)

    @property
    def _sent(self) -> Pipeline:
        """The pipeline as it goes to the driver."""
        if self.client_file is None:
            return self.pipeline
        return replace(self.pipeline, kafka=KafkaSettings.of(self.pipeline.kafka.bootstrap_servers))

    def with_client_of_file(self) -> JobSpec:
        """With the client's properties of its file, if it names one; addresses in the file win."""
        if self.client_file is None:
            return self
        from airflow_eos_provider.connect.cluster.description import JavaClientFile

        read = JavaClientFile.read(Path(self.client_file)).properties
        client = {"bootstrap.servers": self.pipeline.kafka.bootstrap_servers, **read}
        return replace(self, pipeline=replace(self.pipeline, kafka=KafkaSettings(client)))

    def to_dict(self) -> dict[str, Any]:
        """As JSON. It may hold the client's credentials: never log it, write it to a file of mode 0600 only."""
        own = {**members(self), "pipeline": self._sent.to_dict(), "interval": self.interval.name}
        return {**own, "arguments": dict(self.arguments), "key": list(self.key), "spark": dict(self.spark)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> JobSpec:
        """The specification that :meth:`to_dict` wrote."""
        try:
            values = dict(document)
            values["pipeline"] = Pipeline.from_dict(values["pipeline"])
            values["interval"] = Interval.parse(values["interval"])
            key = values.get("key", "key")
            values["key"] = (key,) if isinstance(key, str) else tuple(key)
            return cls(**values)
        except KeyError as error:
            raise ConfigurationError(f"The job's specification lacks {error}.") from None
        except TypeError as error:  # its text names the argument, no value
            raise ConfigurationError(f"The job's specification cannot be used: {error}.") from None

    def call(self, spark: Any) -> Any:
        """Call the user's function."""
        from airflow_eos_provider.interval.spark.spark_errors import spark_errors

        function = load_function(self.function)
        with spark_errors(f"The function {self.function}"):
            return function(spark, self.interval, **self.arguments)


def load_function(name: str) -> Callable[..., Any]:
    """The function of this name.

    :param name: ``package.module:function`` or ``/path/file.py:function``.
    """
    place, colon, attribute = name.rpartition(":")
    expected = "package.module:function, or /path/file.py:function"
    if not colon or not place or not attribute:
        raise ConfigurationError(f"{name!r} does not name a function.", expected=expected)
    try:
        if place.endswith(".py"):
            specification = importlib.util.spec_from_file_location(Path(place).stem, place)
            assert specification is not None
            assert specification.loader is not None
            module = importlib.util.module_from_spec(specification)
            sys.modules[Path(place).stem] = module
            specification.loader.exec_module(module)
            from pyspark import cloudpickle

            ship_by_value: Any = cloudpickle.register_pickle_by_value
            ship_by_value(module)  # executors could not import it by its name
        else:
            module = importlib.import_module(place)
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise ConfigurationError(
            f"The function {name} cannot be loaded: {error}.",
            expected=expected,
            remedy="Make it importable in the job's driver (--py-files), or name its file.",
        ) from error
    function = getattr(module, attribute, None)
    if not callable(function):
        raise ConfigurationError(f"{place} has no function {attribute!r}.", expected=expected)
    return function  # type: ignore[no-any-return]


def run(spec: JobSpec, report: Callable[[str], None] = logger.info) -> Completed:
    """Run a job in this process, in the session that there is, or else in one of its own."""
    from pyspark.sql import SparkSession

    from airflow_eos_provider.interval.spark.write import write_interval

    began_at = spec.interval.require_ended(spec.allow_before_end)
    spec = spec.with_client_of_file()
    choose_executor_python(spec.spark, master_of(spec.spark))
    builder: Any = SparkSession.builder.appName(f"{spec.pipeline.name} {spec.interval.name}")
    for name, value in {**daemon_property(spec.spark), **spec.spark}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    look_often(spark)
    if page := getattr(getattr(spark, "sparkContext", None), "uiWebUrl", None):  # a remote session has none of its own
        _tell(PAGE_PREFIX, {"url": page})
    try:
        return write_interval(
            spec.call(spark),
            spec.pipeline,
            spec.interval,
            spark=spark,
            revision=spec.revision,
            slices=spec.slices,
            key=spec.key,
            slices_by=spec.slices_by,
            tasks=spec.tasks,
            pin_inputs=spec.pin_inputs,
            began_at=began_at,
            selects_by_bounds=spec.selects_by_bounds,
            allow_before_end=spec.allow_before_end,
            report=report,
        )
    finally:
        stop(spark)


def read_spec(path: str | None) -> JobSpec:
    """The specification of a file, or of the variable :data:`SPEC_VARIABLE`."""
    try:
        text = Path(path).read_text(encoding="utf-8") if path else os.environ.pop(SPEC_VARIABLE)
    except (KeyError, OSError) as error:
        raise ConfigurationError(
            f"There is no specification of the job: {error}.", expected=f"--spec FILE, or {SPEC_VARIABLE} with the JSON"
        ) from None
    return _parsed(text)


def _parsed(text: str) -> JobSpec:
    try:
        return JobSpec.from_dict(json.loads(text))
    except ValueError as error:  # the text may hold a password, so the position alone is reported
        raise ConfigurationError(f"The job's specification is not JSON: {getattr(error, 'msg', error)}.") from None


def program(document: Mapping[str, Any]) -> str:
    """A job with its specification within, which removes its own file first."""
    return "\n".join(
        [
            "import sys",
            "from airflow_eos_provider.interval.spark.job import carried",
            f"SPECIFICATION = {json.dumps(document)!r}",  # a line of its own, which no traceback shows
            "sys.exit(carried(SPECIFICATION, __file__))\n",
        ]
    )


def carried(specification: str, file: str) -> int:
    """The job of a :func:`program`; its exit code."""
    _begin_to_log()
    _remove(Path(file))
    return _exit_code(lambda: _parsed(specification))


def main(arguments: Sequence[str] | None = None) -> int:
    """The job; its exit code."""
    parser = argparse.ArgumentParser(description=inspect.cleandoc(__doc__ or ""))
    parser.add_argument("--spec", metavar="FILE", help="JSON document that describes the run")
    parser.add_argument(
        "--delete-spec", action="store_true", help="delete that file after reading it; it contains secrets"
    )
    chosen = parser.parse_args(arguments)
    _begin_to_log()

    def read() -> JobSpec:
        spec = read_spec(chosen.spec)
        if chosen.spec and chosen.delete_spec:
            _remove(Path(chosen.spec))
        return spec

    return _exit_code(read)


def _begin_to_log() -> None:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")
    logger.setLevel(logging.INFO)


def _exit_code(read: Callable[[], JobSpec]) -> int:
    """Run a job, and tell of its end."""
    try:
        _tell(RESULT_PREFIX, run(read()).to_dict())
    except EosError as error:
        _tell(FAILURE_PREFIX, {"type": type(error).__name__, "exit_code": error.exit_code, "message": str(error)})
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except Exception as error:
        _tell(FAILURE_PREFIX, {"type": type(error).__name__, "exit_code": 1, "message": redact(str(error))[:2000]})
        raise
    return 0


def _remove(path: Path) -> None:
    """Remove a file; of a link what it leads to, as well: YARN links a container to a cache that outlives it."""
    for each in (path.resolve(), path):
        each.unlink(missing_ok=True)


def _tell(prefix: str, document: Mapping[str, Any]) -> None:
    sys.stdout.write(f"{prefix}{json.dumps(document)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
