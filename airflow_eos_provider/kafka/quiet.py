"""Suppresses kafka-python's logging during this package's calls.

It reports each connection that comes and goes, and each failed attempt of a login; the operator needs
only this package's error. At DEBUG some of its loggers write whole requests, passwords included. Levels are set only
while a client of ours is open: a process may have other users of the library.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: Whoever wants to read the library's lines sets this logger to DEBUG.
OURS = logging.getLogger("airflow_eos_provider")

#: At DEBUG they write the whole configuration, every request, and every byte that is sent.
_WITH_SECRETS = ("kafka.admin.client", "kafka.net.connection", "kafka.protocol.parser")

_lock = threading.Lock()
_calls = 0
_levels: dict[str, int] = {}


@contextmanager
def quiet_kafka_python() -> Iterator[None]:
    """Within this, and in every thread of the process meanwhile, kafka-python writes nothing into a log.

    If this package's own logger is at DEBUG, it writes all but the lines that hold secrets.
    """
    _begin()
    try:
        yield
    finally:
        _end()


def _begin() -> None:
    global _calls
    with _lock:
        _calls += 1
        if _calls > 1:
            return
        wanted = dict.fromkeys(_WITH_SECRETS, logging.WARNING)
        if not OURS.isEnabledFor(logging.DEBUG):
            wanted = dict.fromkeys(("kafka", *_WITH_SECRETS), logging.CRITICAL + 1)
        for name, level in wanted.items():
            _levels[name] = logging.getLogger(name).level
            logging.getLogger(name).setLevel(level)


def _end() -> None:
    global _calls
    with _lock:
        _calls -= 1
        if _calls == 0:
            for name, level in _levels.items():
                logging.getLogger(name).setLevel(level)
            _levels.clear()
