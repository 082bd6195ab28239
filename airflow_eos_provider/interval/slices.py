"""Slices and the plan that freezes them.

A slice is the unit of commitment: all of it or nothing. Which rows belong to which slice is decided once, before the
first commit; a retry with more or fewer tasks, or after the source has moved, finds the plan and follows it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.interval.interval import Run

#: Schema of a stored plan. A plan of another schema is refused, not guessed at.
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What one run writes, frozen before it writes. Without slices, the interval is empty on purpose.

    :param slices: what is in each slice, by its number: a file, a key hash and so on.
    """

    run: Run
    slices: Sequence[Mapping[str, Any]]
    source: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "slices", tuple(self.slices))
        object.__setattr__(self, "source", MappingProxyType(dict(self.source)))
        try:
            self.to_json()
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"The plan of {self.run} cannot be written down: {error}.") from None

    @property
    def hash(self) -> str:
        """Of all that decides which row belongs to which slice: 32 hexadecimal digits."""
        return hashlib.blake2b(self.to_json().encode(), digest_size=16).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        slices = [dict(each) for each in self.slices]
        return {"schema": SCHEMA, "run": self.run.name, "slices": slices, "source": dict(self.source)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> RunPlan:
        """The plan that :meth:`to_dict` wrote."""
        if document.get("schema") != SCHEMA:
            raise EosError(
                f"A plan of schema {document.get('schema')} is on record for {document.get('run')}.",
                expected=f"schema {SCHEMA}",
                remedy="Continue with the version of airflow-eos-provider that wrote it.",
            )
        return cls(Run.parse(document["run"]), document["slices"], document["source"])

    def to_json(self) -> str:
        """The canonical text, of which the hash is taken."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> RunPlan:
        return cls.from_dict(json.loads(text))


def folders_read(source: Mapping[str, Any], slices: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The folders of the files that a plan has pinned, with how many of each; empty where it kept no paths."""
    files = [*source.get("files", ()), *(piece["file"] for piece in slices if "file" in piece)]
    folders = Counter(str(file["path"]).rpartition("/")[0] or "/" for file in files)
    return dict(sorted(folders.items()))
