"""Waits for an event, bounded."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from airflow_eos_provider.connect.rest import ConnectorStatus, ConnectRest
from airflow_eos_provider.errors import ReadTimeoutError, UnreachableError
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

T = TypeVar("T")

#: A machine that is slow, or busy with other files of the suite, gets so many times the seconds of a quiet one. A wait
#: ends with its event, so that costs nothing but where the event never comes.
PATIENCE = 4

#: Without a pause of its own, a wait looks less often the longer it has lasted, down to once in so many seconds, and
#: looks for a fifth of its time at most: a look takes the CPU of what it waits for. One of seconds waits itself.
_LONGEST_PAUSE_SECONDS = 0.5
_LOOKS_PAUSED_FOR = 4
_PAUSE_AFTER_LONG_LOOK_SECONDS = 2.0

#: Between two looks at Airflow's REST API, each question of which takes its api-server some 30 ms of CPU.
API_PAUSE_SECONDS = 1.0


def until(condition: Callable[[], object], what: str, *, seconds: float, pause: float | None = None) -> None:
    """Look again and again until the condition holds.

    A look that nobody answered, on a busy machine, sees nothing yet; nor does one that an open transaction held up.

    :param pause: between two looks at least, seconds; what holds for a moment only needs one. It is twice as long as a
        look takes at least.
    """
    begun = time.monotonic()
    deadline = begun + PATIENCE * seconds
    while True:
        look, unanswered = time.monotonic(), None
        try:
            if condition():
                return
        except (UnreachableError, ReadTimeoutError) as error:
            unanswered = error
        now = time.monotonic()
        assert now < deadline, f"waited {now - begun:.0f} s in vain for {what}: {unanswered or 'it does not hold'}"
        if pause is None:
            own = min(max(0.05, (now - begun) / 20), _LONGEST_PAUSE_SECONDS)
            time.sleep(max(own, min(_LOOKS_PAUSED_FOR * (now - look), _PAUSE_AFTER_LONG_LOOK_SECONDS)))
        else:
            time.sleep(max(pause, 2 * (now - look)))


def wait_for(what: str, condition: Callable[[], object], seconds: float = 180.0) -> None:
    """:func:`until` for what a cluster comes to by itself; a look at it takes some hundred milliseconds."""
    until(condition, what, seconds=seconds)


def answered(question: Callable[[], T]) -> T:
    """The answer, or the error, of a question; one that nobody answered, on a busy machine, is asked again."""
    answers: list[T | ReadTimeoutError] = []

    def is_answered() -> bool:
        try:
            answers.append(question())
        except ReadTimeoutError as error:
            answers.append(error)
        return True

    until(is_answered, "an answer", seconds=60)
    if isinstance(answers[0], ReadTimeoutError):
        raise answers[0]
    return answers[0]


def until_ended(kafka: KafkaSettings, prefix: str) -> None:
    """Wait for the markers of all transactions of ids with this prefix.

    A commit or an abort returns before they are written, and until then some looks see nothing of its records.
    """
    with TransactionsClient(kafka) as client:
        until(lambda: not client.open_transactions(prefix), f"the markers of {prefix}", seconds=60)


def status_of(rest: ConnectRest, name: str) -> ConnectorStatus:
    """A connector's status, UNKNOWN and without tasks until it has one: Connect leaves it out of its answer so long."""
    return rest.statuses().get(name) or ConnectorStatus(name, "unknown", "UNKNOWN", "")
