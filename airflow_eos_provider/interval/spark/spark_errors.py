"""Converts Spark's errors into errors of this package, and decides which of them a retry cannot heal.

Spark raises Py4J's errors, its own of two kinds of session, and Python's from a worker. Each has its cause somewhere
else. Only this module reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import errors as of_spark
from pyspark.errors import PySparkException

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.interval.spark.executors.needs import INSTALL_IT, SAME_VERSION
from airflow_eos_provider.interval.spark.executors.tasks import error_within

#: Of the query, or of the data: the same query fails on the same data.
_FINAL_TYPES = (
    of_spark.AnalysisException,
    of_spark.ArithmeticException,
    of_spark.DateTimeException,
    of_spark.IllegalArgumentException,
    of_spark.NumberFormatException,
    of_spark.PySparkAttributeError,
    of_spark.PySparkTypeError,
    of_spark.PySparkValueError,
    of_spark.UnsupportedOperationException,
)

#: Classes of SQLSTATE: a wrong value, a query or a name that is wrong, something that Spark does not do.
_FINAL_STATES = re.compile(r"SQLSTATE: (?:22|42|0A)\w{3}")

#: A file that has another content than its format or its schema says.
_BAD_FILE = re.compile(
    r"PARQUET_COLUMN_DATA_TYPE_MISMATCH|is not a Parquet file|can not read class org\.apache\.parquet|"
    r"ParquetDecodingException|orc\.FileFormatException|ZLIB|java\.util\.zip\.|Unexpected end of input stream|"
    r"MalformedInput|CharConversionException|IllegalArgumentException|NumberFormatException|MALFORMED_RECORD|[Cc]orrupt"
)

#: A network or a metastore that may answer the next time.
_MAY_HEAL = re.compile(r"java\.net\.|HiveException|timed? ?out|unavailable|connection (?:re|closed)", re.IGNORECASE)

_CAUSE = "Caused by: "

#: How many causes an error shows, the innermost ones; and how long each may be.
_CAUSES_SHOWN = 3
_LONGEST = 500


@contextmanager
def spark_errors(what: str) -> Iterator[None]:
    """Convert Spark's errors (:func:`explained`)."""
    try:
        yield
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise explained(error, what) from error


def is_of_spark(error: Exception) -> bool:
    """Whether an error is Spark's own, of either kind of session."""
    return isinstance(error, PySparkException) or hasattr(error, "java_exception")


def explained(error: Exception, what: str) -> EosError:
    """The error of this package behind one of Spark's."""
    trace = getattr(error, "_stackTrace", None) or getattr(error, "_stacktrace", None) or ""  # classic; Spark Connect
    text = f"{error}\n{trace}"
    if reported := error_within(text) or refusal_within(text):
        return reported
    causes = _causes(text)
    words = [_last_words(str(error)), *(f"{_CAUSE}{cause}" for cause in causes[-_CAUSES_SHOWN:])]
    found = f"{what} failed: {' '.join(words)}"
    said = "\n".join([str(error).partition("\n\tat ")[0], *causes])
    is_bad_file = "FAILED_READ_FILE" in said and _BAD_FILE.search(said)
    is_final = isinstance(error, _FINAL_TYPES) or is_bad_file or _FINAL_STATES.search(said)
    if is_final and not _MAY_HEAL.search(said):
        return ConfigurationError(
            found, remedy="Correct the query, or the data that it reads, and run the interval again: nothing is lost."
        )
    return EosError(found, remedy="Run the interval again: committed slices stay, and the rest is written.")


def _causes(text: str) -> list[str]:
    """The causes that a Java stack trace names, the outermost first, each once."""
    named = (line.strip()[len(_CAUSE) :][:_LONGEST] for line in text.splitlines() if line.strip().startswith(_CAUSE))
    return list(dict.fromkeys(named))


def _last_words(text: str) -> str:
    """The line of Spark's text that says most: the last of a Python traceback, or else the first.

    The first line of a Py4J error names the method that was called; the error is in the next one.
    """
    lines = [line for line in text.split("\n\tat ")[0].splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling "):
        lines = [lines[1].removeprefix(": "), *lines[2:]]
    python = [line for line in lines if line[0].isalpha() and ": " in line] if "Traceback" in text else []
    return (python or lines or [text])[-1 if python else 0].strip()[:_LONGEST]


def require_pandas() -> None:
    """Check that the driver has the pandas that pyspark asks for where mapInArrow is called; executors need none."""
    from pyspark.sql.pandas.utils import require_minimum_pandas_version

    try:
        require_minimum_pandas_version()
    except ImportError as error:
        words = re.sub(r"^\[[A-Z_]+\] ", "", str(error).splitlines()[0])
        raise ConfigurationError(
            f"The driver's Python lacks what pyspark needs for mapInArrow: {words}",
            expected="pandas in the driver's environment; executors need none",
            remedy="pip install 'pandas<3' there; 'eos intervals doctor' checks the rest.",
        ) from error


def refusal_within(text: str) -> ConfigurationError | None:
    """The error that Spark's text reports where an executor's Python cannot run a task; None if there is none."""
    found = _found(text)
    if found is None:
        return None
    remedy = SAME_VERSION if re.search(r"'(?:airflow_eos_provider|kafka)'| and the driver", found) else INSTALL_IT
    return ConfigurationError(found, remedy=f"{remedy} 'eos intervals doctor --master …' looks at each one.")


def _found(text: str) -> str | None:
    if match := re.search(r"Python in worker has different version:? ([\d.]+) than that in driver:? ([\d.]+)", text):
        worker, driver = (version.rstrip(".") for version in match.groups())
        return f"An executor has Python {worker}, the driver {driver}: Spark takes no other minor version."
    if match := re.search(r'Cannot run program "([^"]+)"', text):
        return f"An executor has no program {match[1]}, which is to be its Python."
    if match := re.search(
        r"ImportError: (The Python of this Spark executor \(.{0,4096}\) (?:lacks|has) .{0,4096}\.)\n", text
    ):
        return match[1]
    if match := re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", text):
        return f"An executor's Python lacks the module {match[1]!r}."
    return None
