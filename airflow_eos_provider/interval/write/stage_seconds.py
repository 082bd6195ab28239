"""Where the time of a slice goes: seconds of each stage, measured in the task that writes it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

#: The stages of a slice, in their order: waiting for its rows (the source, or Spark's shuffle); making records of them
#: and handing those to the client; waiting until the brokers have them; the ledger record and the decision.
STAGES = ("read", "produce", "flush", "commit")

T = TypeVar("T")


class StageSeconds:
    """A stopwatch of the stages."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)

    @contextmanager
    def of(self, stage: str) -> Iterator[None]:
        """What happens within counts to this stage."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage] += time.monotonic() - began

    def reading(self, items: Iterable[T]) -> Iterator[T]:
        """The items; waiting for each is ``read``, what is done with it is ``produce``."""
        iterator = iter(items)
        while True:
            with self.of("read"):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            with self.of("produce"):
                yield item
