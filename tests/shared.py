"""What the files of a family share: made for the first test that asks, and ended with the family's last one."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, ExitStack
from typing import Any


class Shared:
    """Parts by what they are; whoever asks for the same one gets the one that is there."""

    def __init__(self) -> None:
        self._parts: dict[Hashable, Any] = {}
        self._ends = ExitStack()

    def get(self, what: Hashable, made: Callable[[], AbstractContextManager[Any]]) -> Any:
        """The part; it is made if it is not there."""
        if what not in self._parts:
            self._parts[what] = self._ends.enter_context(made())
        return self._parts[what]

    def end(self) -> None:
        """End all parts, the last one first."""
        self._parts.clear()
        self._ends.close()


#: Of this process.
SHARED = Shared()
