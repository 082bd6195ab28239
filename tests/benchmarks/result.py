"""One figure beside its peer's."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """One benchmark's outcome.

    :param ours: our figure, in ``unit``.
    :param peer: the peer's figure, taken in the same run.
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
