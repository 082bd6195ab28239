"""The two kinds of Spark session, and what is asked of each in its own way.

A classic session has Spark's driver in this process's own JVM. A session of Spark Connect is a client of a server that
others use, too: the driver is there, no JVM is here, and what the client's interface does not tell cannot be known.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Collection, Iterator
from types import ModuleType
from typing import Any

from pyspark.errors import PySparkException

from airflow_eos_provider.errors import ConfigurationError

#: What Spark Connect's errors say when the session is not there any more, or its server.
_SERVER_LOST = ("INVALID_HANDLE.SESSION", "SESSION_CHANGED", "RETRIES_EXCEEDED", "UNAVAILABLE", "NO_ACTIVE_SESSION")

#: Rows that are spread over as many partitions as Spark makes by itself.
_SPREAD_ROWS = 1 << 20

#: How long the end of an action is asked for, seconds; a server that is gone does not answer.
_INTERRUPT_SECONDS = 10.0

#: The actions that run in this process, by their tags: thread and session of each.
_running: dict[str, tuple[int, Any]] = {}
_running_lock = threading.Lock()


def is_remote(owner: object) -> bool:
    """Whether a DataFrame or a session belongs to Spark Connect."""
    return type(owner).__module__.startswith("pyspark.sql.connect.")


def is_server_lost(error: BaseException | None) -> bool:
    """Whether an error of Spark Connect says that the session, or its server, is not there any more."""
    return isinstance(error, PySparkException) and any(word in str(error) for word in _SERVER_LOST)


def require_classic(owner: object, what: str) -> None:
    """Check that a frame or a session is not one of Spark Connect.

    :param owner: a DataFrame or a SparkSession.
    :param what: what has no way through Spark Connect.
    :raises ConfigurationError: it is.
    """
    if is_remote(owner):
        raise ConfigurationError(
            f"The {type(owner).__name__} belongs to Spark Connect, through which {what} cannot be had.",
            expected="one of a classic session",
            remedy="Use write_interval(), which writes through Spark Connect, too; or a session with a master of its "
            "own (spark.master, not spark.remote).",
        )


def functions_of(owner: object) -> ModuleType:
    """The functions that make columns for frames of the owner's kind; a process may have sessions of both kinds.

    :param owner: a DataFrame or a SparkSession.
    """
    if is_remote(owner):
        import pyspark.sql.connect.functions as remote

        return remote
    import pyspark.sql.functions as classic

    return classic


def parallelism(spark: Any) -> int:
    """Into how many partitions Spark divides what no plan has divided: by default as many as its cores."""
    if not is_remote(spark):
        return int(spark.sparkContext.defaultParallelism)
    number = functions_of(spark).spark_partition_id().alias("number")
    return int(spark.range(_SPREAD_ROWS).select(number).distinct().count())


@contextlib.contextmanager
def interruptible(spark: Any) -> Iterator[None]:
    """Let the Spark jobs of this thread end with who waits for them; a context manager.

    A time-out, or whatever else ends the wait, would leave the jobs of a shared session running: what they wrote would
    be right, but they would hold its cores. An error of Spark's own has ended them already.
    """
    tag = f"eos-{uuid.uuid4().hex}"
    owner = spark if is_remote(spark) else spark.sparkContext
    mark, unmark = (owner.addTag, owner.removeTag) if is_remote(spark) else (owner.addJobTag, owner.removeJobTag)
    mark(tag)
    with _running_lock:
        _running[tag] = (threading.get_ident(), spark)
    try:
        yield
    except PySparkException:
        raise
    except BaseException as error:
        if type(error).__module__.partition(".")[0] != "py4j":
            _interrupt({tag: spark})
        raise
    finally:
        with _running_lock:
            _running.pop(tag, None)
        with contextlib.suppress(Exception):  # the session may have been stopped
            unmark(tag)


def interrupt(threads: Collection[int] | None = None) -> None:
    """End the Spark jobs that run within :func:`interruptible`; a signal handler may call it.

    :param threads: identities of those that wait for the jobs; all of this process if not given.
    """
    running = dict(_running)  # without the lock, which the interrupted thread may hold
    _interrupt({tag: spark for tag, (thread, spark) in running.items() if threads is None or thread in threads})


def _interrupt(running: dict[str, Any]) -> None:
    """Ask in another thread: this one may hold what the client needs, and a server that is gone does not answer."""
    if running:
        asking = threading.Thread(target=_ask_to_end, args=(running,), daemon=True)
        asking.start()
        asking.join(_INTERRUPT_SECONDS)


def _ask_to_end(running: dict[str, Any]) -> None:
    for tag, spark in running.items():
        with contextlib.suppress(Exception):
            if is_remote(spark):
                spark.interruptTag(tag)
            else:  # interruptTag of such a session leaves a collect running (Spark 4.2)
                spark.sparkContext.cancelJobsWithTag(tag)
