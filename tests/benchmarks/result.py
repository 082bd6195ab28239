"""One figure beside its peer's, and the lab in which a benchmark takes it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.lab.lab import TestLab, TestLabOptions


@dataclass(frozen=True, slots=True)
class Result:
    """One benchmark's outcome.

    :param ours: our figure, in ``unit``.
    :param better: ``higher`` or ``lower``.
    """

    name: str
    ours: float
    peer: float
    better: str
    unit: str
    what: str

    @property
    def ratio(self) -> float:
        return self.ours / self.peer if self.peer else float("inf")

    def to_dict(self) -> dict[str, object]:
        return {**asdict(self), "ratio": self.ratio}


@contextmanager
def own_lab(name: str, *, workers: int = 0, **options: Any) -> Iterator[TestLab]:
    """A lab for one benchmark; its options' root is a folder of which nothing stays."""
    with tempfile.TemporaryDirectory() as folder:
        lab = TestLab.up(TestLabOptions(name=name, workers=workers, root=Path(folder), **options))
        try:
            yield lab
        finally:
            lab.down()
