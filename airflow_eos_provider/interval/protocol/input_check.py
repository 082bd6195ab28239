"""Compares an attempt's input with the committed slices: they must have the same rows.

Later attempts skip a committed slice. A row that has moved since would be written twice, or not at all, and no reader
would notice. So the rows of the committed slices are counted and summed up from this attempt's own input, and compared
with the ledger, before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True)
class Difference:
    """A committed slice whose rows are not those of the input."""

    number: int
    committed: SliceFigures
    found: SliceFigures

    def __str__(self) -> str:
        return f"slice {self.number} is committed with {self.committed}; the input now has {self.found}"


def differences(committed: Mapping[int, SliceFigures], found: Mapping[int, SliceFigures]) -> tuple[Difference, ...]:
    """The committed slices whose figures are not those of the input, in their order.

    :param found: by slice; one that is not there has no rows. Those that are not committed are left alone.
    """
    return tuple(
        Difference(number, figures, found.get(number, SliceFigures()))
        for number, figures in sorted(committed.items())
        if found.get(number, SliceFigures()) != figures
    )


def require_same_rows(stage: Stage, found: Mapping[int, SliceFigures]) -> Stage:
    """Compare the input with what is committed."""
    if differ := differences(stage.committed, found):
        raise InputChangedError(
            f"The input of {stage.run} has changed between attempts: {_named(differ)}",
            expected=f"the rows of the {len(stage.committed)} slices that are committed; nothing was written now",
            remedy=_REMEDY,
        )
    return replace(stage, compared=True)


def require_one_evaluation(run: Run, committed: Mapping[int, SliceFigures], found: Mapping[int, SliceFigures]) -> None:
    """Compare all that an attempt has committed with one more evaluation of its input."""
    if differ := differences(committed, found):
        raise InputChangedError(
            f"The input of {run} has changed within this attempt, a part of which Spark has evaluated more than once: "
            f"{_named(differ)}",
            expected=f"the rows of the {len(committed)} slices that are committed; the run is not complete",
            remedy=_REMEDY,
        )


def _named(differ: Sequence[Difference]) -> str:
    shown = "; ".join(map(str, differ[:_SHOWN]))
    numbers = ", ".join(str(d.number) for d in differ[:_NUMBERS_SHOWN])
    more = f" In all {len(differ)} slices differ: {numbers}{', …' if len(differ) > _NUMBERS_SHOWN else ''}."
    return f"{shown}.{more if len(differ) > _SHOWN else ''}"
