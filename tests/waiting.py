"""Waits for an event, bounded."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], what: str, *, seconds: float, pause: float = 0.05) -> None:
    """Look again and again until the condition holds.

    :param condition: what is looked at; it holds once its result is true.
    :param what: what is waited for, for the message of a wait in vain.
    :param seconds: how long at most.
    :param pause: between two looks at least, seconds; and twice as long as a look takes, so that a wait does not take
        the time of what it waits for.
    """
    deadline = time.monotonic() + seconds
    while True:
        begun = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        assert now < deadline, f"waited {seconds:.0f} s in vain for {what}"
        time.sleep(max(pause, 2 * (now - begun)))
