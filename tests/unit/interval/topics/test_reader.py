"""Topics of interval runs are asked for again, each kind of silence for its own time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_eos_provider.errors import EosError, UnreachableError
from airflow_eos_provider.interval.topics import run_reader
from airflow_eos_provider.interval.topics.run_reader import ask_until_answered
from airflow_eos_provider.kafka.read.topic_ends import UnknownTopicError

AWAY, UNKNOWN = UnreachableError("away"), UnknownTopicError("there is no topic t")


def asking(*answers: EosError | int) -> Callable[[], int]:
    """A question that is answered so, in turn; the last answer stays."""
    left = list(answers)

    def ask() -> int:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, EosError):
            raise answer
        return answer

    return ask


def test_brokers_that_do_not_answer_and_one_that_has_not_heard_of_the_topic_are_asked_again() -> None:
    lines: list[str] = []
    assert ask_until_answered(asking(UNKNOWN, AWAY, UNKNOWN, AWAY, 7), "t", lines.append) == 7
    assert [line[:47] for line in lines] == ["The brokers have not answered about topic t for"] * 2


@pytest.mark.parametrize(("error", "limit"), [(AWAY, "_ANSWER_SECONDS"), (UNKNOWN, "_NEWS_SECONDS")])
def test_what_stays_away_is_told(monkeypatch: pytest.MonkeyPatch, error: EosError, limit: str) -> None:
    monkeypatch.setattr(run_reader, limit, 0.0)
    with pytest.raises(type(error), match=error.found):
        ask_until_answered(asking(error), "t")


def test_another_error_is_told_at_once() -> None:
    with pytest.raises(EosError, match="another"):
        ask_until_answered(asking(EosError("another"), 7), "t")
