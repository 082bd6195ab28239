"""Waits of tests end with their event, whatever a look on the way does not see."""

from __future__ import annotations

import pytest

from airflow_eos_provider.errors import ReadTimeoutError, UnreachableError
from tests.waiting import answered, until


def test_a_look_that_nobody_answered_is_taken_again() -> None:
    looks = [UnreachableError("no broker answers"), ReadTimeoutError("a transaction is open"), False, True]

    def look() -> object:
        seen = looks.pop(0)
        if isinstance(seen, Exception):
            raise seen
        return seen

    until(look, "the event", seconds=60)
    assert not looks


def test_a_question_that_nobody_answered_is_asked_again_and_its_error_is_an_answer() -> None:
    answers = [UnreachableError("no broker answers"), 7, ReadTimeoutError("a transaction is open")]

    def ask() -> object:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    assert answered(ask) == 7
    with pytest.raises(ReadTimeoutError):
        answered(ask)


def test_a_wait_in_vain_says_what_it_saw_last() -> None:
    def look() -> object:
        raise UnreachableError("no broker answers")

    with pytest.raises(AssertionError, match="in vain for the event: no broker answers"):
        until(look, "the event", seconds=0)
