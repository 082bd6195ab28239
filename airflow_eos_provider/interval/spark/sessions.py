"""The two kinds of Spark session, behind one interface.

A classic session has Spark's driver in this process's own JVM. A session of Spark Connect is a client of a server that
others use, too: the driver is there, no JVM is here, and only what the client's interface tells is known.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextvars import copy_context
from types import ModuleType
from typing import Any, TypeVar

from pyspark.errors import PySparkException

#: What Spark Connect's errors say when the session is not there any more, or its server.
_SERVER_LOST = ("INVALID_HANDLE.SESSION", "SESSION_CHANGED", "RETRIES_EXCEEDED", "UNAVAILABLE", "NO_ACTIVE_SESSION")

#: Rows that are spread over as many partitions as Spark makes by itself.
_SPREAD_ROWS = 1 << 20

T = TypeVar("T")

#: How long acts get to end whose wait was given up, seconds, and how often they are asked.
_END_SECONDS = 60.0
_ASK_SECONDS = 0.5

#: How long the end of an action is asked for, seconds; a server that is gone does not answer.
_INTERRUPT_SECONDS = 10.0

#: A server that was lost is looked for so often, milliseconds, and for as long as pyspark does by itself: ten minutes.
#: By itself it waits up to a minute between two looks.
_LOOK_MS = 3000
_LOOKS = 200

#: The actions that run in this process, by their tags: thread and session of each.
_running: dict[str, tuple[int, Any]] = {}
_running_lock = threading.Lock()


def is_remote(owner: object) -> bool:
    """Whether a DataFrame or a session belongs to Spark Connect."""
    return type(owner).__module__.startswith("pyspark.sql.connect.")


def owner_of(spark: Any) -> Any:
    """Who has a session's jobs and files: its Spark context, or the session itself where it is Spark Connect's."""
    return spark if is_remote(spark) else spark.sparkContext


def is_server_lost(error: BaseException | None) -> bool:
    """Whether an error of Spark Connect says that the session, or its server, is not there any more."""
    return isinstance(error, PySparkException) and any(word in str(error) for word in _SERVER_LOST)


def look_often(spark: Any) -> None:
    """Let a session of Spark Connect find its server soon after that was lost and has come back.

    By itself gRPC waits up to two minutes between two connections, and answers pyspark's questions meanwhile.

    """
    if is_remote(spark):
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.proto.base_pb2_grpc import SparkConnectServiceStub

        client = spark.client
        client.set_retry_policies([DefaultPolicy(max_retries=_LOOKS, max_backoff=_LOOK_MS)])
        client._builder.setChannelOption("grpc.max_reconnect_backoff_ms", _LOOK_MS)
        client._channel = client._builder.toChannel()
        client._stub = SparkConnectServiceStub(client._channel)  # type: ignore[no-untyped-call]


def stop(spark: Any) -> None:
    """Stop a session. pyspark would look for a server that is gone for ten minutes more, only to take leave of it."""
    if is_remote(spark):
        spark.client.set_retry_policies([])
    spark.stop()


def functions_of(owner: object) -> ModuleType:
    """The functions that make columns for frames of the owner's kind; a process may have sessions of both kinds."""
    if is_remote(owner):
        import pyspark.sql.connect.functions as remote

        return remote
    import pyspark.sql.functions as classic

    return classic


def quoted(column: str) -> str:
    """A column's name as Spark takes it: dots and backticks in it mean nothing."""
    return "`" + column.replace("`", "``") + "`"


def parallelism(spark: Any) -> int:
    """Into how many partitions Spark divides what no plan has divided: by default as many as its cores."""
    if not is_remote(spark):
        return int(spark.sparkContext.defaultParallelism)
    number = functions_of(spark).spark_partition_id().alias("number")
    return int(spark.range(_SPREAD_ROWS).select(number).distinct().count())


def without_adaptive_execution(frame: Any) -> Any:
    """A classic frame whose every evaluation has the same partitions, as far as Spark decides it.

    Its plan is in a copy of the session, as settings are the session's: adaptive execution is off, and
    ``repartition(n)`` orders the rows before it deals them out, which is the default.
    """
    spark = frame.sparkSession
    own = spark._jsparkSession.cloneSession()
    for name, value in (("adaptive.enabled", "false"), ("execution.sortBeforeRepartition", "true")):
        own.conf().set(f"spark.sql.{name}", value)
    sql = spark._jvm.org.apache.spark.sql
    made = (sql if spark.version.startswith("3.") else sql.classic).Dataset.ofRows(
        own, frame._jdf.queryExecution().analyzed()
    )
    return type(frame)(made, spark)


@contextlib.contextmanager
def interruptible(spark: Any) -> Iterator[None]:
    """Let the Spark jobs of this thread end with who waits for them; a context manager.

    A time-out, or whatever else ends the wait, would leave the jobs of a shared session running: what they wrote would
    be right, but they would hold its cores. An error of Spark's own has ended them already.
    """
    tag = f"eos-{uuid.uuid4().hex}"
    owner = owner_of(spark)
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


def awaited(spark: Any, act: Callable[[], T]) -> T:
    """What an act returns whose Spark jobs end with this thread's wait for them.

    An error out of a signal, as of a time-out, comes up in the main thread. There pyspark asks Spark's JVM something
    before it passes the error on, by the very connection that waits for the job, and so waits for the job's end. So
    there an act of a classic session has a thread of its own, with the local properties of this one.

    :param act: runs its jobs within :func:`interruptible`.
    """
    if is_remote(spark) or threading.current_thread() is not threading.main_thread():
        return act()
    context, outcome = spark.sparkContext._jsc.sc(), Future[T]()
    properties = context.getLocalProperties().clone()

    def run() -> None:
        try:
            context.setLocalProperties(properties)
            outcome.set_result(act())
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=copy_context().run, args=(run,), name="eos-interval", daemon=True)
    thread.start()
    try:
        return outcome.result()
    except BaseException:
        end([outcome], {thread.ident or 0})
        raise


def end(acts: Iterable[Future[Any]], threads: Collection[int]) -> None:
    """Interrupt acts until they have ended; one that is between two actions is asked again. Bounded."""
    left = {act for act in acts if not act.done()}
    deadline = time.monotonic() + _END_SECONDS
    while left and time.monotonic() < deadline:
        interrupt(threads)
        _, left = wait(left, timeout=_ASK_SECONDS, return_when=FIRST_COMPLETED)


def interrupt(threads: Collection[int] | None = None) -> None:
    """End the Spark jobs that run within :func:`interruptible`; a signal handler may call it."""
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
