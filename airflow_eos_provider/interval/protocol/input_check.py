"""Compares an attempt's input with the committed slices: they must have the same rows.

Later attempts skip a committed slice. A row that has moved since would be written twice, or not at all, and no reader
would notice. So the rows of the committed slices are counted and summed up from this attempt's own input, and compared
with the ledger, before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.messages import SliceFigures, Stage

#: Slices that an error names with their figures; of the others it names the numbers.
_SHOWN = 3
_NUMBERS_SHOWN = 20

_REMEDY = (
    "Restore the input that the first attempt read, and run the interval again. The query must return the same rows, "
    "byte for byte, in every run: keys and values must not depend on the clock, on random numbers or on the order of "
    "arrival. If the old input is lost, write the interval as a new revision; the committed records of this one "
    "stay in the topic."
)


class InputChangedError(RefusedError):
    """The rows of the input differ from the committed rows. Nothing was written after the comparison."""


def require_same_rows(stage: Stage, found: Mapping[int, SliceFigures]) -> Stage:
    """Compare this attempt's rows, by slice, with what is committed."""
    if differ := _differences(stage.committed, found):
        raise InputChangedError(
            f"The input of {stage.run} has changed between attempts: {differ}",
            expected=f"the rows of the {len(stage.committed)} slices that are committed; nothing was written now",
            remedy=_REMEDY,
        )
    return replace(stage, compared=True)


def require_one_evaluation(run: Run, committed: Mapping[int, SliceFigures], found: Mapping[int, SliceFigures]) -> None:
    """Compare all that an attempt has committed with one more evaluation of its input."""
    if differ := _differences(committed, found):
        raise InputChangedError(
            f"The input of {run} has changed within this attempt, a part of which Spark has evaluated more than once: "
            f"{differ}",
            expected=f"the rows of the {len(committed)} slices that are committed; the run is not complete",
            remedy=_REMEDY,
        )


def _differences(committed: Mapping[int, SliceFigures], found: Mapping[int, SliceFigures]) -> str:
    """The committed slices that have other figures in the input, in words. A slice that is not found has no rows."""
    pairs = [(number, figures, found.get(number, SliceFigures())) for number, figures in sorted(committed.items())]
    differ = [(number, was, now) for number, was, now in pairs if was != now]
    if not differ:
        return ""
    shown = "; ".join(f"slice {n} is committed with {was}; the input now has {now}" for n, was, now in differ[:_SHOWN])
    if len(differ) <= _SHOWN:
        return f"{shown}."
    numbers = ", ".join(str(number) for number, _, _ in differ[:_NUMBERS_SHOWN])
    more = ", …" if len(differ) > _NUMBERS_SHOWN else ""
    return f"{shown}. In all {len(differ)} slices differ: {numbers}{more}."
