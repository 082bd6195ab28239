"""Ctrl-C for what a test starts."""

from __future__ import annotations

import signal


def take_ctrl_c() -> None:
    """Tests that are run in the background of a shell ignore Ctrl-C, and so would what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
