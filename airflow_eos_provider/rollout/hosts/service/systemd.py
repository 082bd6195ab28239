"""The restart of a worker's unit: one job of systemd's, given once, waited for, and reported.

Once systemd has the job, it stops and starts the unit without any connection. Only the request may come twice: a
command that a dying connection has delayed arrives later, or an answer is lost. So the machine compares first: it
requests the job only if the unit still has the invocation to replace and no job runs. A command that arrives after the
restart finds another invocation, and does nothing.
"""

from __future__ import annotations

import time

from airflow_eos_provider.errors import ConfigurationError, EosError, RefusedError
from airflow_eos_provider.redaction import secrets_of
from airflow_eos_provider.rollout.hosts.address import accepts_connections
from airflow_eos_provider.rollout.hosts.host import (
    NotRestartedError,
    RestartPendingError,
    RestartRequest,
    WorkerStartError,
)
from airflow_eos_provider.rollout.hosts.machine.machine import Answer, MachineLostError
from airflow_eos_provider.rollout.hosts.machine.processes import as_word
from airflow_eos_provider.rollout.hosts.machine.worker_log import shown_lines
from airflow_eos_provider.rollout.hosts.restart_event import Moment, RestartEvent
from airflow_eos_provider.rollout.hosts.service.unit import Unit
from airflow_eos_provider.rollout.hosts.service.unit_look import UnitFacts, UnitLook

#: A started worker is watched until it listens, at most this many seconds; one that ends meanwhile has refused its
#: configuration.
EARLY_END_SECONDS = 10.0

#: What systemd may take for a job beside its own timeouts: other jobs before it, a busy machine.
SLACK_SECONDS = 30.0

#: Where a unit says that its stop or its start may take for ever, the wait for it ends nevertheless.
LONGEST_SECONDS = 300.0

#: systemd gives up a stop some seconds after ``TimeoutStopSec=``: it kills, and waits as long again (systemd.kill(5)).
_KILLS = 2

#: The compare answers so where the unit is in another invocation by now, or has a job.
_MOVED, _BUSY = 75, 76

#: The compare is repeated so often where a unit that keeps ending moves under it.
_ATTEMPTS = 5

#: The last lines of a worker that has ended are waited for so long, seconds; it may have printed none.
LAST_LINES_SECONDS = 20.0

_LOOK_SECONDS = 0.2
_CONNECT_SECONDS = 0.5

#: Its arguments: the unit, the invocation that is to be replaced (empty: none), and the command that gives the job.
_COMPARE_AND_RESTART = as_word(
    f"""
    unit=$1; expected=$2; shift 2; LC_ALL=C; export LC_ALL;
    shown=$(systemctl show --property=InvocationID,Job,ActiveState -- "$unit") || exit 1;
    now=; job=; state=;
    for line in $shown; do case $line in
    InvocationID=*) now=${{line#*=}};; Job=*) job=${{line#*=}};; ActiveState=*) state=${{line#*=}};; esac; done;
    case $job in ''|0) ;; *) exit {_BUSY};; esac;
    if [ "$now" != "$expected" ]; then case "$now $state" in ' inactive'|' failed') ;; *) exit {_MOVED};; esac; fi;
    exec "$@"
    """
)

_PERMISSION_WORDS = ("authentication required", "access denied", "permission denied", "a password is required", "sudo:")


class SystemdService(UnitLook):
    """One worker's unit; a :class:`~airflow_eos_provider.rollout.hosts.service.service.Service`."""

    def restart(self, request: RestartRequest) -> None:
        """One job of systemd's, which it finishes by itself."""
        UnitRestart(self, request).run()


class UnitRestart:
    """One restart of one worker's unit.

    How long the worker may take to stop, the unit's own limit says. When the unit has ended and was started is as
    systemd has it.
    """

    def __init__(self, service: UnitLook, request: RestartRequest) -> None:
        self._service = service
        self._request = request
        self._told: Unit | None = None  # whose moments were told last; None before this act has begun

    def run(self) -> None:
        """Restart it, unless this very act was done already."""
        request = self._request
        facts, unit = self._startable(self._service.look())
        before = unit
        if unit.job:
            self._say("an earlier restart is still running; waiting for its end")
            facts, unit = self._startable(self._wait_for_job(facts, unit)[0])
        if facts.has_done(request):
            self._tell_end(before, facts, unit)
            self._request.on_event(facts.restarted_already)
            self._watch(unit, unit.restarts)
            return
        self._say_stop_limit(unit)
        request.permit("stop" if facts.process else "start")
        self._told = unit
        if unit.active_state == "failed":
            self._run_checked(self._service.reset_words(), "systemd could not reset its failure")
        self._watch(*self._restart(unit))

    def _startable(self, facts: UnitFacts) -> tuple[UnitFacts, Unit]:
        """The facts of a unit that can be restarted."""
        if facts.unit is None:
            raise ConfigurationError(
                f"{self._service.worker.worker_id} cannot be restarted: {facts.problem}.",
                remedy="Correct 'service' or 'machine' in the cluster description.",
            )
        if facts.unit.refuses_restart or facts.unit.needs_reload:
            obstacle = next(each for each in facts.obstacles if each.of_next_start)
            raise NotRestartedError(
                f"{self._service.worker.worker_id} is not restarted: {obstacle.what}.", remedy=f"{obstacle.remedy}."
            )
        return facts, facts.unit

    def _restart(self, unit: Unit) -> tuple[Unit, int]:
        """Give systemd the job once, whatever the connection does, and wait for its end.

        Besides the unit, returns what its count of systemd's own restarts may be without any since then: systemd sets
        it to 0 at a start by a command, but not where it was about to start the unit by itself.
        """
        may_have_given = False
        for _ in range(_ATTEMPTS):
            before = unit
            answer = self._compare_and_restart(before.invocation)
            if answer is not None and answer.exit_code not in (0, _MOVED, _BUSY):
                raise self._refusal(answer)
            may_have_given = may_have_given or answer is None
            facts, unit = self._look_again()
            if answer is not None and answer.ok:
                return self._wait_for_job(facts, unit, replaces=before.invocation)[1], before.restarts
            if unit.job:
                facts, unit = self._wait_for_job(facts, unit)
            if unit.invocation != before.invocation and (may_have_given or facts.has_done(self._request)):
                return unit, unit.restarts
            # The command was lost before it ran, or the unit was in another invocation when it came: once more.
        raise RefusedError(
            f"{self._service.worker.worker_id} was not restarted: its unit changed at each of {_ATTEMPTS} attempts.",
            remedy=f"It keeps ending: read its log ({self._service.log}).",
        )

    def _compare_and_restart(self, invocation: str) -> Answer | None:
        """Its answer; None where the connection was lost before that."""
        words = ["/bin/sh", "-c", _COMPARE_AND_RESTART, "sh", self._service.unit, invocation]
        try:
            return self._service.machine.run([*words, *self._service.restart_words()])
        except MachineLostError as error:
            if not error.may_have_run:
                raise
            self._say(f"the connection to {self._service.where} was lost; checking the restart there")
            return None

    def _look_again(self, give_up_at: float | None = None) -> tuple[UnitFacts, Unit]:
        """A look after the act may have begun. No answer yet says nothing of the worker: the connection may have to be
        mended, systemd may just execute itself anew, and a machine that boots refuses logins until it is up.
        """
        deadline = time.monotonic() + SLACK_SECONDS if give_up_at is None else give_up_at
        while True:
            lost: EosError
            try:
                facts = self._service.look()
                if facts.unit is not None:
                    self._tell(facts, facts.unit)
                    return facts, facts.unit
                lost = MachineLostError(f"{facts.problem}.", may_have_run=True)
            except EosError as error:
                lost = error
            if time.monotonic() >= deadline:
                if isinstance(lost, MachineLostError):
                    raise lost
                raise MachineLostError(lost.found, remedy=lost.remedy, may_have_run=True) from lost
            time.sleep(_LOOK_SECONDS)

    def _wait_for_job(self, facts: UnitFacts, unit: Unit, *, replaces: str | None = None) -> tuple[UnitFacts, Unit]:
        """Wait until systemd has finished the job."""
        seconds = _bounded(unit.stop_seconds) * _KILLS + _bounded(unit.start_seconds)
        deadline = time.monotonic() + seconds + SLACK_SECONDS
        while unit.job or not (replaces is None or _is_replaced(unit, replaces)):
            if time.monotonic() >= deadline:
                raise RestartPendingError(
                    f"The restart of {self._service.worker.worker_id} is not over after {seconds:.0f} s; systemd "
                    f"continues it without this process. Unit {self._service.unit} is {unit.state}.",
                    remedy=f"Check what it waits for on {self._service.where}: systemctl status {self._service.unit}; "
                    "systemctl list-jobs.",
                )
            time.sleep(_LOOK_SECONDS)
            facts, unit = self._look_again(deadline)
        return facts, unit

    def _watch(self, unit: Unit, restarts: int) -> None:
        """Wait until the worker listens, or its first seconds are over; what comes later is the gate's."""
        first, url = unit.invocation, self._service.worker.url
        deadline = time.monotonic() + EARLY_END_SECONDS
        while True:
            if unit.is_stopped or unit.invocation != first or unit.restarts not in (0, restarts):
                raise self._ended(unit, first)
            if accepts_connections(url, seconds=_CONNECT_SECONDS) or time.monotonic() >= deadline:
                return
            time.sleep(_LOOK_SECONDS)
            _, unit = self._look_again(deadline + SLACK_SECONDS)

    def _ended(self, unit: Unit, invocation: str) -> WorkerStartError:
        service, state = self._service, unit.state
        again = f"; systemd has started it again {unit.restarts} times" if unit.restarts else ""
        return WorkerStartError(
            f"{service.worker.worker_id} (unit {service.unit}) ended right after its start: it is {state}{again}. "
            f"Its log:\n{self._tail(invocation)}",
            remedy=f"Correct what the log reports ({service.log}).",
        )

    def _tail(self, invocation: str) -> str:
        """What it printed last; on a busy machine the journal has that a moment after systemd has seen the end."""
        invocations = [invocation]
        deadline = time.monotonic() + LAST_LINES_SECONDS
        try:
            while not (text := self._service.last_lines(invocations)).strip() and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
                unit = self._service.look().unit
                if unit is not None and unit.invocation not in ("", *invocations):
                    invocations.append(unit.invocation)
        except EosError as error:
            return f"(the log cannot be read: {error.found})"
        return shown_lines(text, secrets=secrets_of(dict(self._service.worker.env)))

    def _run_checked(self, words: tuple[str, ...], otherwise: str) -> None:
        answer = self._service.machine.run(words)
        if not answer.ok:
            self._say(f"{otherwise}: {answer.problem}")

    def _refusal(self, answer: Answer) -> NotRestartedError:
        words = " ".join(self._service.restart_words())
        said = answer.err.decode("utf-8", "replace").strip()
        if any(each in said.lower() for each in _PERMISSION_WORDS):
            why = said.splitlines()[0].rstrip(".")  # systemctl's last line says where to look for more
            return NotRestartedError(
                f"{self._service.worker.worker_id} was not restarted: '{words}' is not allowed: {why}. "
                "Nothing was stopped.",
                remedy="Let it go through sudo (machine: {sudo: [service]}), with the lines of 'eos hosts sudoers'.",
            )
        return NotRestartedError(
            f"{self._service.worker.worker_id} was not restarted: '{words}' failed: {answer.problem}.",
            remedy=f"Check it on {self._service.where}: systemctl status {self._service.unit}.",
        )

    def _say(self, words: str) -> None:
        self._request.on_event(RestartEvent(words))

    def _tell(self, facts: UnitFacts, unit: Unit) -> None:
        """Report the moments of this act that are known by now, each once."""
        if self._told is None:
            return
        before, self._told = self._told, unit
        self._tell_end(before, facts, unit)
        started = unit.main_started_at_boottime
        if started not in (None, before.main_started_at_boottime):
            words = f"started as pid {unit.main_pid}" if unit.main_pid else "started"
            self._request.on_event(RestartEvent(words, Moment.STARTED, facts.at_uptime(started)))

    def _tell_end(self, before: Unit, facts: UnitFacts, unit: Unit) -> None:
        """Report when the unit has ended, if it has since it was seen before."""
        ended = unit.ended_at_boottime
        if ended not in (None, before.ended_at_boottime):
            self._request.on_event(RestartEvent(f"unit {unit.name} has ended", Moment.STOPPED, facts.at_uptime(ended)))

    def _say_stop_limit(self, unit: Unit) -> None:
        """Which limit the stop has, where it is not the one that the roll was given."""
        limit = unit.stop_seconds
        if limit is None:
            self._say(f"unit {unit.name} may take for ever to stop (TimeoutStopSec=infinity)")
        elif abs(limit - (grace := self._request.stop_grace_seconds)) > 1.0:
            self._say(
                f"systemd kills it {limit:.0f} s after its stop begins (TimeoutStopSec=), not after {grace:.0f} s"
            )


def _is_replaced(unit: Unit, invocation: str) -> bool:
    """Whether a start has come after that invocation; a unit that failed at once may be forgotten with its name."""
    return unit.invocation != invocation or (unit.active_state == "failed" and unit.result != "success")


def _bounded(seconds: float | None) -> float:
    return LONGEST_SECONDS if seconds is None else min(seconds, LONGEST_SECONDS)
