"""The shown text and the hash of a plan, as a task passes them on; the plan is made again when it is carried out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.plan_hash import HashedPlan, hash_of

#: What such a document says that it is.
KIND = "shown plan"


@dataclass(frozen=True, slots=True)
class ShownDocument(HashedPlan):
    """What was shown.

    :param question: one line, which the approver answers.
    :param lines: the plan for a person.
    :param plan_hash: of the plan itself; it is made anew before it is carried out, and has to be the same.
    """

    question: str
    lines: tuple[str, ...]
    plan_hash: str

    @property
    def hash(self) -> str:
        """SHA-256 over what was shown and the plan's own hash."""
        return hash_of(self._content())

    def to_dict(self) -> dict[str, Any]:
        return {**self._content(), "hash": self.hash}

    def _content(self) -> dict[str, Any]:
        return {"kind": KIND, "question": self.question, "lines": list(self.lines), "plan_hash": self.plan_hash}

    @classmethod
    def from_dict(cls, document: Any) -> ShownDocument:
        """What :meth:`to_dict` wrote.

        :raises ConfigurationError: it is none, or its content does not have its hash.
        """
        try:
            lines: Sequence[Any] = document["lines"]
            found = cls(str(document["question"]), tuple(map(str, lines)), str(document["plan_hash"]))
            told = document["hash"] if isinstance(document, Mapping) else None
        except (KeyError, TypeError):
            found, told = None, None
        if found is None or told != found.hash:
            raise ConfigurationError(
                "The plan does not have its hash, or there is none.",
                remedy="Start a new run; a plan is carried out as the task before has made it.",
            )
        return found
