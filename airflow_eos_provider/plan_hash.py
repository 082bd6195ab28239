"""The hash by which a plan is shown, approved and carried out."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from airflow_eos_provider.errors import PlanMovedError

#: A plan is shown by so many digits of its hash, and named by so many at least.
SHORT_HASH_LENGTH = 12
MIN_HASH_LENGTH = 8

#: Plans that were shown, so that a refusal can say what has moved since. Nothing depends on this folder.
PLANS_FOLDER = Path(".eos/plans")


def hash_of(content: Any) -> str:
    """SHA-256 over what a plan does and what it rests on, in hexadecimal.

    :param content: as JSON takes it; the order of an object's members does not count.
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class HashedPlan(ABC):
    """A plan with a hash."""

    __slots__ = ()

    @property
    @abstractmethod
    def hash(self) -> str:
        """SHA-256 over what is changed, and what that rests on."""

    @property
    def short_hash(self) -> str:
        return self.hash[:SHORT_HASH_LENGTH]


class ShownPlan(HashedPlan):
    """A plan that is made anew for each call, and carried out if it is the one that was shown.

    :cvar moved: what has changed if it is not.
    """

    __slots__ = ()
    moved: ClassVar[str]

    def require(self, plan_hash: str) -> None:
        """Go on only if this is the plan that was shown.

        :raises PlanMovedError: it is another one.
        """
        if not self.hash.startswith(plan_hash):
            raise PlanMovedError(
                f"The plan is {self.short_hash}, and not {plan_hash}: {self.moved}.",
                remedy="Run the command without the hash to see the new plan.",
            )
