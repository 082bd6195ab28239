"""The hash by which a plan is shown, approved and carried out."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

#: A plan is shown by so many digits of its hash, and named by so many at least.
SHORT_HASH_LENGTH = 12
MIN_HASH_LENGTH = 8

#: Plans that were shown, so that a refusal can say what has moved since. Nothing depends on this folder.
PLANS_FOLDER = Path(".eos/plans")


def hash_of(content: Any) -> str:
    """SHA-256 over what a plan does and what it rests on, in hexadecimal."""
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
