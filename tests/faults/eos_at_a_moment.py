"""``eos`` that sends itself a signal at one moment of a roll: SIGKILL to be dead there, SIGSTOP to be suspended there.

``python eos_at_a_moment.py MOMENT[#N] SIGNAL ARGUMENT…``; N counts how often the moment has come. The product has no
such hook: its own functions are wrapped here, in a process of the tests. So that a roll takes seconds, the gate has
short limits, and an act is given up sooner.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from airflow_eos_provider.cli import main
from airflow_eos_provider.cli.rollout import plan_apply
from airflow_eos_provider.journal.journal import Journal
from airflow_eos_provider.journal.records import Step, StepStatus
from airflow_eos_provider.rollout import roll_settings
from airflow_eos_provider.rollout.act import at_gate
from airflow_eos_provider.rollout.gate.state import GateState
from airflow_eos_provider.rollout.hosts.service import restart_act
from airflow_eos_provider.rollout.hosts.serviced import ServicedHost

#: Each moment of a roll, in the order in which one worker passes it.
MOMENTS = (
    "begun",
    "announced",
    "file written",
    "permitted",
    "stopped",
    "cut off",
    "spawned",
    "started",
    "restarted",
    "gate polled",
    "passed",
    "ending",
    "ended",
)


#: Those of the restart's helper: a line of its script, and what it runs right before that. The old process has ended;
#: the same, and the helper dies as well, as when the machine goes down; the new process was started, and that is not
#: written down yet.
HELPERS_MOMENTS = {
    "stopped": ('    say_moment stopped "pid $stop_pid has ended"', "kill -s {signal} {controller}"),
    "cut off": ('    say_moment stopped "pid $stop_pid has ended"', "kill -s {signal} {controller}; kill -s KILL $me"),
    "spawned": ("  started_as", "kill -s {signal} {controller}"),
}


class Moments:
    """Counts the moments, and sends the signal when the one has come."""

    def __init__(self, wanted: str, signal_name: str) -> None:
        moment, _, number = wanted.partition("#")
        if moment not in (*MOMENTS, "never"):
            raise SystemExit(f"no moment {moment}")
        self._wanted = (moment, int(number or 1))
        self._signal = signal.Signals[signal_name]
        self._seen: Counter[str] = Counter()

    def come(self, moment: str) -> None:
        self._seen[moment] += 1
        if (moment, self._seen[moment]) == self._wanted:
            sys.stderr.write(f"at the moment: {moment}\n")
            sys.stderr.flush()
            os.kill(os.getpid(), self._signal)


def after(owner: Any, name: str, come: Callable[..., None]) -> None:
    """Call ``come`` with the own arguments of a method or function after it has returned."""
    method = getattr(owner, name)

    @wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        come(*args, **kwargs)
        return result

    setattr(owner, name, wrapped)


def hook(moments: Moments) -> None:
    steps = {
        StepStatus.INTENT: "announced",
        StepStatus.RESTARTED: "restarted",
        StepStatus.PASSED: "passed",
    }

    def recorded(_journal: Journal, step: Step) -> None:
        goes_on = step.status is StepStatus.INTENT and (step.stopped_after, step.started_after) != (None, None)
        holds = step.status is StepStatus.RESTARTED and step.evidence
        if not goes_on and not holds:  # no note of how far a restart, or its gate, has come
            moments.come(steps[step.status])

    def looked(gate: GateState, *_: Any) -> None:
        if gate.worker_id is not None:
            moments.come("gate polled")

    def confirmed(_journal: Journal, act: str) -> None:
        if act.endswith(": stop"):
            moments.come("permitted")

    after(Journal, "begin", lambda *_, **__: moments.come("begun"))
    after(Journal, "record", recorded)
    after(Journal, "confirm", confirmed)
    after(Journal, "end", lambda *_: moments.come("ended"))
    after(ServicedHost, "edit", lambda *_, **__: moments.come("file written"))
    after(ServicedHost, "restart", lambda *_, **__: moments.come("started"))
    after(at_gate, "look_at", looked)

    end = Journal.end

    def ending(journal: Journal, record: Any) -> None:
        moments.come("ending")
        end(journal, record)

    Journal.end = ending  # type: ignore[method-assign]


def watch_helper(moment: str, signal_name: str) -> None:
    """Let the helper of a restart send this process the signal at its moment."""
    if moment not in HELPERS_MOMENTS:
        return
    line, act = HELPERS_MOMENTS[moment]
    inserted = act.format(signal=signal_name.removeprefix("SIG"), controller=os.getpid())
    script_of = restart_act._script

    def script(*, of_act: bool = False) -> bytes:
        text = script_of(of_act=of_act).decode()
        if not of_act:
            return text.encode()
        before, found, after = text.partition(f"\n{line}\n")
        assert found, "the script has no such line any more"
        return f"{before}\n  {inserted}{found}{after}".encode()

    restart_act._script = script  # type: ignore[assignment]


def shorten_limits() -> None:
    roll_settings.RESTART_MARGIN_SECONDS = 2.0
    plan_apply.RolloutSettings = partial(  # type: ignore[assignment,misc]
        roll_settings.RolloutSettings, polls=2, poll_interval_seconds=0.3, hold_seconds=1.0
    )


if __name__ == "__main__":
    hook(Moments(sys.argv[1], sys.argv[2]))
    watch_helper(sys.argv[1], sys.argv[2])
    shorten_limits()
    sys.argv = ["eos", *sys.argv[3:]]
    main()
