"""The restart helper, which sends its controller a signal at one moment of the act.

``python helper_at_a_moment.py MOMENT SIGNAL PID``; see ``eos_at_a_moment.py``, which starts it in the helper's place.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

from airflow_eos_provider import processes
from airflow_eos_provider.rollout.hosts.process import restart_helper

#: After the old process has ended; the same, and the helper dies as well, as when the machine goes down; after the new
#: process was started, before its pid is written down.
MOMENTS = ("stopped", "cut off", "spawned")


def hook(moment: str, signal_number: int, controller: int) -> None:
    def come(now: str) -> None:
        if now == moment:
            os.kill(controller, signal_number)
            if moment == "cut off":
                os.kill(os.getpid(), signal.SIGKILL)

    stop_family = processes.stop_family

    def stop(*args: Any, **kwargs: Any) -> Any:
        result = stop_family(*args, **kwargs)
        come("stopped")
        come("cut off")
        return result

    def spawn(*args: Any, **kwargs: Any) -> Any:
        process = subprocess.Popen(*args, **kwargs)
        come("spawned")
        return process

    processes.stop_family = stop
    processes.subprocess = SimpleNamespace(  # type: ignore[assignment]
        Popen=spawn, DEVNULL=subprocess.DEVNULL, STDOUT=subprocess.STDOUT
    )


if __name__ == "__main__":
    hook(sys.argv[1], signal.Signals[sys.argv[2]], int(sys.argv[3]))
    sys.exit(restart_helper.main())
