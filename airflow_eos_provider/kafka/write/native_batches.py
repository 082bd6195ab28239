"""Many records in one call: librdkafka's own ``rd_kafka_produce_batch``, on the client of a confluent-kafka producer.

confluent-kafka has one Python call for a record, and one more callback for its delivery. Here the rows of a column go
to the library from their place in memory, without an object for each row. The library is the one confluent-kafka is
linked to. Its functions and structures that are used here are public and do not change between versions; the place
where confluent-kafka keeps its handle is private and may change. So the handle is taken only from known versions, and
only if the library, asked for the object that the handle belongs to, names the producer. Otherwise there are no
batches, and each record goes the ordinary way.

Records of a batch have no callback. Their results are read from the library's queue of events, which has no other
records' reports during a batch: see :class:`~airflow_eos_provider.kafka.write.producer.TransactionalProducer`.
"""

from __future__ import annotations

import ctypes
import logging
import platform
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Producer, cimpl

from airflow_eos_provider.kafka.clients import logger as client_logger
from airflow_eos_provider.kafka.write.bytes_column import HAS_NUMPY, BytesColumn

logger = logging.getLogger(__name__)

#: Versions of confluent-kafka whose producer begins with the handle, with the size of such an object, bytes.
_KNOWN = {"2.16": 176}

_MACHINES = ("x86_64", "aarch64", "arm64")

#: What it costs to have no batches, as docs/contributing/benchmarks.md has measured it.
SLOWER = "The records are the same; a row costs the task up to twice the CPU time."

_ANY_PARTITION = -1
_COPY = 0x2
_EVENT_DELIVERY = 0x1
_EVENT_LOG = 0x4
_EVENT_ERROR = 0x8

#: Syslog's number for an error; lower ones are worse.
_SYSLOG_ERROR = 3

#: ``rd_kafka_message_t``: offset and numpy's type of what is set of it.
_MESSAGE_BYTES = 72
_FIELDS = {"err": (0, "<i4"), "payload": (24, "<u8"), "len": (32, "<u8"), "key": (40, "<u8"), "key_len": (48, "<u8")}

#: One look at the events, seconds.
_LOOK_SECONDS = 0.1
_EVENTS_AT_ONCE = 1000

#: Where an empty row lies: an address that is not null, as that of a missing one is.
_NOWHERE = ctypes.create_string_buffer(8)

#: Receives the error of records that were refused, and their topic.
Refused = Callable[[KafkaError, str], None]

#: Receives an error that the client met in the background.
OnError = Callable[[KafkaError], None]


class NativeBatches:
    """Hands rows to the client of one producer, which it refers to while it is there.

    :param producer: it must not be closed meanwhile.
    :param refused: called while events are looked at.
    :param on_error: likewise.
    """

    def __init__(self, producer: Producer, library: Any, refused: Refused, on_error: OnError) -> None:
        self._producer = producer
        self._library = library
        self._refused = refused
        self._on_error = on_error

    @classmethod
    def of(cls, producer: Producer, refused: Refused, on_error: OnError) -> NativeBatches | None:
        """The batches of a producer, None where they cannot be had safely; the log says why, once in a process."""
        why = why_not()
        if not why and type(producer) is not Producer:
            why = f"the producer is of the class {type(producer).__qualname__}, not confluent-kafka's own Producer"
        if not why and _library().rd_kafka_opaque(_handle(producer)) != id(producer):
            why = "the client was not found where confluent-kafka keeps it"
        if why:
            _say_once(why)
            return None
        return cls(producer, _library(), refused, on_error)

    def messages(self, keys: BytesColumn, values: BytesColumn) -> Any:
        """The rows as the library takes them; what they are of has to be kept while they are used."""
        import numpy as np

        names, places = list(_FIELDS), list(_FIELDS.values())
        kind = {
            "names": names,
            "offsets": [offset for offset, _ in places],
            "formats": [format_ for _, format_ in places],
            "itemsize": _MESSAGE_BYTES,
        }
        found: Any = np.zeros(len(values.lengths), np.dtype(kind))  # type: ignore[call-overload]
        for column, address, length in ((keys, "key", "key_len"), (values, "payload", "len")):
            begin = column.data.ctypes.data if len(column.data) else ctypes.addressof(_NOWHERE)
            found[address] = np.where(column.lengths < 0, 0, begin + column.starts)
            found[length] = np.maximum(column.lengths, 0)
        return found

    def enqueue(self, topic: str, messages: Any) -> tuple[int, KafkaError | None]:
        """Queue records, each for the partition of its key's hash. Their bytes are copied.

        :returns: how many from the first on are queued, and why the next one is not. If the queue is full, none
            behind it is queued either.
        """
        library, handle = self._library, _handle(self._producer)
        target = library.rd_kafka_topic_new(handle, topic.encode(), None)
        if not target:
            return 0, KafkaError(library.rd_kafka_last_error())
        try:
            queued = library.rd_kafka_produce_batch(target, _ANY_PARTITION, _COPY, messages.ctypes.data, len(messages))
        finally:
            library.rd_kafka_topic_destroy(target)
        if queued == len(messages):
            return queued, None
        errors = messages["err"]
        first = int(errors.nonzero()[0][0])
        return first, KafkaError(int(errors[first]))

    def serve(self, seconds: float) -> None:
        """Look at what has become of records.

        :param seconds: wait for so long, if there is nothing to be seen.
        :raises KafkaException: the client has ended.
        """
        library = self._library
        queue = library.rd_kafka_queue_get_main(_handle(self._producer))
        try:
            wait = int(seconds * 1000)
            for _ in range(_EVENTS_AT_ONCE):
                event = library.rd_kafka_queue_poll(queue, wait)
                if not event:
                    return
                wait = 0
                try:
                    self._take(event)
                finally:
                    library.rd_kafka_event_destroy(event)
        finally:
            library.rd_kafka_queue_destroy(queue)

    def flush(self, seconds: float) -> int:
        """Wait until it is known of every record what has become of it.

        :returns: of how many it is not, after so many seconds.
        """
        deadline = time.monotonic() + seconds
        while left := int(self._library.rd_kafka_outq_len(_handle(self._producer))):
            if time.monotonic() > deadline:
                return left
            self.serve(_LOOK_SECONDS)
        return 0

    def _take(self, event: int) -> None:
        library = self._library
        kind, code = library.rd_kafka_event_type(event), library.rd_kafka_event_error(event)
        if kind == _EVENT_DELIVERY and code:
            message = library.rd_kafka_event_message_next(event)
            topic = library.rd_kafka_topic_name(ctypes.c_void_p.from_address(message + 8)) if message else b""
            self._refused(KafkaError(code), topic.decode())
        elif kind == _EVENT_ERROR:
            is_fatal = bool(library.rd_kafka_event_error_is_fatal(event))
            error = KafkaError(code, library.rd_kafka_event_error_string(event).decode(errors="replace"), is_fatal)
            if is_fatal:
                raise KafkaException(error)
            self._on_error(error)
        elif kind == _EVENT_LOG:
            self._log(event)

    def _log(self, event: int) -> None:
        facility, line, level = ctypes.c_char_p(), ctypes.c_char_p(), ctypes.c_int()
        self._library.rd_kafka_event_log(event, *map(ctypes.byref, (facility, line, level)))
        severity = logging.ERROR if level.value <= _SYSLOG_ERROR else logging.INFO
        client_logger.log(
            severity, "%s %s", *((text.value or b"").decode(errors="replace") for text in (facility, line))
        )


def why_not() -> str:
    """Why this Python has no batches, with what was found and what is expected; empty if it has them."""
    version = str(confluent_kafka.__version__)
    size = _KNOWN.get(".".join(version.split(".")[:2]))
    if not HAS_NUMPY:
        return "numpy is not installed"
    if sys.implementation.name != "cpython" or platform.machine() not in _MACHINES:
        found = f"{sys.implementation.name} on {platform.machine()}"
        return f"the interpreter is {found}; known is cpython on {', '.join(_MACHINES)}"
    if size is None:
        return f"confluent-kafka is {version}; known are {', '.join(f'{known}.*' for known in _KNOWN)}"
    if Producer.__basicsize__ != size:
        return f"a producer of confluent-kafka {version} has {Producer.__basicsize__} bytes; expected are {size}"
    if _library() is None:
        return f"confluent-kafka {version} is linked to a librdkafka that lacks a function or is of another version"
    return ""


@lru_cache
def _say_once(why: str) -> None:
    logger.info("Rows are handed to the client one by one, not in batches: %s. %s", why, SLOWER)


def _handle(producer: Producer) -> int | None:
    """The client; it is what an object of confluent-kafka's begins with."""
    return ctypes.c_void_p.from_address(id(producer) + object.__basicsize__).value


@lru_cache(maxsize=1)
def _library() -> Any:
    """The library that confluent-kafka is linked to, None if it lacks a function or is another than it says."""
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    functions: dict[str, tuple[Any, list[Any]]] = {
        "rd_kafka_version": (number, []),
        "rd_kafka_opaque": (pointer, [pointer]),
        "rd_kafka_last_error": (number, []),
        "rd_kafka_topic_new": (pointer, [pointer, text, pointer]),
        "rd_kafka_topic_destroy": (None, [pointer]),
        "rd_kafka_topic_name": (text, [pointer]),
        "rd_kafka_produce_batch": (number, [pointer, ctypes.c_int32, number, pointer, number]),
        "rd_kafka_outq_len": (number, [pointer]),
        "rd_kafka_queue_get_main": (pointer, [pointer]),
        "rd_kafka_queue_poll": (pointer, [pointer, number]),
        "rd_kafka_queue_destroy": (None, [pointer]),
        "rd_kafka_event_type": (number, [pointer]),
        "rd_kafka_event_error": (number, [pointer]),
        "rd_kafka_event_error_string": (text, [pointer]),
        "rd_kafka_event_error_is_fatal": (number, [pointer]),
        "rd_kafka_event_message_next": (pointer, [pointer]),
        "rd_kafka_event_log": (number, [pointer, pointer, pointer, pointer]),
        "rd_kafka_event_destroy": (None, [pointer]),
    }
    try:
        library = ctypes.CDLL(cimpl.__file__)  # its symbols, and those of what it is linked to
        for name, (result, arguments) in functions.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError, TypeError):
        return None
    return library if library.rd_kafka_version() == confluent_kafka.libversion()[1] else None
