from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_eos_provider.interval.write import stage_seconds
from airflow_eos_provider.interval.write.stage_seconds import STAGES, StageSeconds


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that goes as the test says."""
    clock = [0.0]
    monkeypatch.setattr(stage_seconds.time, "monotonic", lambda: clock[0])
    return clock


def test_waiting_for_rows_and_what_is_done_with_them_are_told_apart(now: list[float]) -> None:
    def source() -> Iterator[str]:
        for item in "ab":
            now[0] += 1
            yield item
        now[0] += 1  # the last look finds nothing

    stages = StageSeconds()
    for _ in stages.reading(source()):
        now[0] += 10
    with stages.of("commit"):
        now[0] += 100

    assert stages.seconds == {"read": 3, "produce": 20, "flush": 0, "commit": 100}
    assert tuple(stages.seconds) == STAGES


def test_the_time_of_a_stage_that_fails_counts(now: list[float]) -> None:
    stages = StageSeconds()

    def fails() -> None:
        now[0] += 2
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), stages.of("flush"):
        fails()

    assert stages.seconds["flush"] == 2
