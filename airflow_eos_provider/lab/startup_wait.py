"""Waits for processes to start: while they make progress, within a limit.

A fixed limit is either too long for a process that hangs or too short on a busy machine. A process that starts writes
its log and uses the CPU. The wait fails if it stops doing both for a while, and at the limit if it never gets ready.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from airflow_eos_provider.errors import EosError, UnreachableError
from airflow_eos_provider.lab.ownership import log_tail
from airflow_eos_provider.processes import ProcessIdentity

#: CPU time that counts as progress, seconds. A process that only waits uses less than this within a minute or so.
CPU_STEP_SECONDS = 0.5

_LOOK_EVERY_SECONDS = 1.0
_TAIL_LINES = 25


@dataclass(frozen=True, slots=True)
class StartupLimits:
    """How long a process may take to start.

    :param idle_seconds: for so long a process may show no progress.
    :param overall_seconds: within this time it has to be ready, progress or not.
    """

    idle_seconds: float
    overall_seconds: float

    def given_up_because(self, elapsed_seconds: float, idle_seconds: float) -> str | None:
        """Why it is given up; None while it is to be waited for.

        :param elapsed_seconds: since the start.
        :param idle_seconds: since the last progress.
        """
        if idle_seconds > self.idle_seconds:
            return f"is not ready after {elapsed_seconds:.0f} s and has made no progress for {idle_seconds:.0f} s"
        if elapsed_seconds > self.overall_seconds:
            return f"is not ready after {elapsed_seconds:.0f} s, the limit, though it still makes progress"
        return None


@dataclass(frozen=True, slots=True)
class Activity:
    """What a process has done so far.

    :param log_bytes: size of its log.
    :param cpu_seconds: CPU time of the process and all below it.
    """

    log_bytes: int
    cpu_seconds: float

    def is_progress_since(self, earlier: Activity) -> bool:
        """Whether the log changed or enough CPU time passed (it falls where a child ended that was not waited for)."""
        return self.log_bytes != earlier.log_bytes or abs(self.cpu_seconds - earlier.cpu_seconds) >= CPU_STEP_SECONDS


@dataclass(frozen=True, slots=True)
class Seen:
    """A part's last progress.

    :param activity: what it had done by then.
    :param at: when that was seen, seconds of one monotonic clock.
    """

    activity: Activity
    at: float

    def idle_seconds(self, now: float) -> float:
        return now - self.at


@dataclass(frozen=True, slots=True)
class Starting:
    """One process that has to come up.

    :param name: as errors call it.
    :param log: the log of this process alone.
    """

    name: str
    process: ProcessIdentity
    log: Path

    def activity(self) -> Activity:
        try:
            log_bytes = self.log.stat().st_size
        except OSError:
            log_bytes = 0
        return Activity(log_bytes, _cpu_seconds(self.process))

    def end_of_log(self) -> str:
        return f"The end of {self.log}:\n{log_tail(self.log, _TAIL_LINES)}"


def wait_until_ready(
    parts: Sequence[Starting],
    not_ready: Callable[[], Collection[str]],
    limits: StartupLimits,
    *,
    progress: Callable[[float, Collection[str]], None] = lambda elapsed, names: None,
    ended: type[EosError] = EosError,
    given_up: type[EosError] = UnreachableError,
    poll_seconds: float = 0.1,
) -> None:
    """Return when no part is awaited any more.

    :param parts: all of them have to live, also those that are ready or were never awaited.
    :param not_ready: names of the parts that are awaited now; others do not have to show progress.
    :param progress: called at each look with the seconds so far and the awaited names.
    :param ended: raised at once when a part has ended, with the end of its own log.
    :param given_up: raised when a part is beyond its limits, with the end of its own log.
    :param poll_seconds: pause between two questions to ``not_ready``.
    """
    started = looked = time.monotonic()
    seen: Mapping[str, Seen] = {}
    while True:
        awaited = not_ready()
        if not awaited:
            return
        for part in parts:
            if not part.process.is_alive():
                if not not_ready():  # an end that was awaited came between the two questions
                    return
                raise ended(f"{part.name} ended while it started. {part.end_of_log()}", remedy=f"Read {part.log}.")
        now = time.monotonic()
        if now - looked >= _LOOK_EVERY_SECONDS or not seen:
            looked = now
            seen = seen_now(seen, {part.name: part.activity() for part in parts if part.name in awaited}, now)
            _judge(parts, {name: one.idle_seconds(now) for name, one in seen.items()}, now - started, limits, given_up)
        progress(now - started, awaited)
        time.sleep(poll_seconds)


def seen_now(seen: Mapping[str, Seen], activities: Mapping[str, Activity], now: float) -> dict[str, Seen]:
    """What has been seen of each part after another look; one that was not awaited at the last look begins anew.

    :param seen: after the last look, by name.
    :param activities: of the parts that are awaited now, by name.
    :param now: seconds of one monotonic clock.
    """
    found = {}
    for name, activity in activities.items():
        before = seen.get(name)
        is_idle = before is not None and not activity.is_progress_since(before.activity)
        found[name] = before if before is not None and is_idle else Seen(activity, now)
    return found


def _judge(
    parts: Sequence[Starting], idle: dict[str, float], elapsed: float, limits: StartupLimits, given_up: type[EosError]
) -> None:
    reasons = {name: limits.given_up_because(elapsed, seconds) for name, seconds in idle.items()}
    failed = [part for part in parts if reasons.get(part.name)]
    if failed:
        raise given_up(
            "\n".join(f"{part.name} {reasons[part.name]}. {part.end_of_log()}" for part in failed),
            remedy=f"Read {', '.join(str(part.log) for part in failed)}.",
        )


def _cpu_seconds(process: ProcessIdentity) -> float:
    """CPU time of a process, of all that live below it, and of those that ended there."""
    total = 0.0
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(process.pid)
        for one in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += sum(one.cpu_times()[:4])  # its own, and its ended children's, by user and system
    return total
