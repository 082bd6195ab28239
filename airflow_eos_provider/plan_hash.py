"""The hash by which a plan is shown, approved and carried out."""

from __future__ import annotations

import hashlib
import json
from typing import Any

#: A plan is shown by so many digits of its hash, and named by so many at least.
SHORT_HASH_LENGTH = 12
MIN_HASH_LENGTH = 8


def hash_of(content: Any) -> str:
    """SHA-256 over what a plan does and what it rests on, in hexadecimal.

    :param content: as JSON takes it; the order of an object's members does not count.
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
