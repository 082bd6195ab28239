"""Requests about groups, retried while a coordinator moves or loads.

A broker that has just become the coordinator of some groups reads their partitions of ``__consumer_offsets``. Until it
has, it answers ``COORDINATOR_LOAD_IN_PROGRESS`` to a question about one of these groups and to any listing
(``GroupCoordinatorService``): for a moment after each broker's start. librdkafka does not retry it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from airflow_eos_provider.kafka.clients import QuietAdmin

T = TypeVar("T")

_MOVES = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)

#: Between two questions, seconds.
_PAUSE = 0.2


def moves(answer: object) -> bool:
    """Whether an answer is the error of a coordinator that is about to move or to load."""
    error = answer.args[0] if isinstance(answer, KafkaException) else answer
    return isinstance(error, KafkaError) and error.code() in _MOVES


def ask_again(admin: QuietAdmin, ask: Callable[[], T], unsettled: Callable[[T], bool], deadline: float) -> T:
    """The first answer that is settled; the last one, as it is, once the deadline has passed.

    :param unsettled: whether an answer is worth another question, mostly by :func:`moves`.
    :param deadline: in the seconds of ``time.monotonic``.
    """
    while unsettled(answer := ask()) and time.monotonic() < deadline:
        admin.client.poll(_PAUSE)
    return answer


def answers_by_group(
    admin: QuietAdmin, ask: Callable[[list[str]], Mapping[str, Future[T]]], groups: Iterable[str], seconds: float
) -> dict[str, T | KafkaException]:
    """By group what its coordinator answers; those whose coordinator moves are asked for again, together.

    :param ask: an admin call for some groups; it bounds the wait for each answer.
    :param seconds: beyond this no question is asked again.
    """
    answers = dict[str, T | KafkaException]()
    waiting = list(groups)

    def ask_for_the_rest() -> list[str]:
        asked = ask(waiting) if waiting else {}
        for name, future in asked.items():
            try:
                answers[name] = future.result()
            except KafkaException as error:
                answers[name] = error
        waiting[:] = [name for name in waiting if moves(answers[name])]
        return waiting

    ask_again(admin, ask_for_the_rest, bool, time.monotonic() + seconds)
    return answers
