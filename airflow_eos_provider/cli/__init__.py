"""The command line ``eos``: the same core as the Airflow layer, for a terminal."""

from __future__ import annotations

import gc
import sys

#: Objects that are made between two searches for garbage. A command makes hundreds of thousands while it imports, and
#: ends soon: Python's default costs it a sixth of its start.
_GARBAGE_THRESHOLD = 100_000

#: What a shell says of a command that ended by Ctrl-C.
_INTERRUPTED = 130


def main() -> None:
    """Run ``eos``; every expected error is a few lines on standard error and an exit code of its own.

    Everything is imported in here, so that Ctrl-C prints no traceback in the first second either.
    """
    gc.set_threshold(_GARBAGE_THRESHOLD)
    try:
        from airflow_eos_provider.cli.app import run

        code = run()
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        code = _INTERRUPTED
    sys.exit(code)
