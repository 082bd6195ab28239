"""May the next worker be restarted? This module answers it (requirement A4).

The answer is yes when every condition (``conditions.py``) has held, on an unchanged group, for several polls in a row
that together span a heartbeat and a rebalance (``settings.py``). It is no, or cannot be told, when a condition can no
longer come true, or has not come true by the deadline.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_eos_provider.rollout.checks import Check, Verdict, inconclusive, overall
from airflow_eos_provider.rollout.conditions import CONDITIONS, Condition
from airflow_eos_provider.rollout.delay import DelayClock
from airflow_eos_provider.rollout.expectation import Expectation
from airflow_eos_provider.rollout.observation import Observation

#: What another process has seen holding so long ago, at most, still holds on: about two looks, and a task's start.
CARRIED_OVER_SECONDS = 30.0


def evaluate(
    expectation: Expectation, observation: Observation, conditions: tuple[Condition, ...] = CONDITIONS
) -> tuple[Check, ...]:
    """All conditions, in the order in which an operator would ask for them."""
    return tuple(condition(expectation, observation) for condition in conditions)


@dataclass(frozen=True, slots=True)
class Hold:
    """How long the gate has held so far.

    :param polls: polls in a row in which every condition held on the same group.
    :param since: moment of the first of them, seconds since the epoch.
    :param snapshot: digest of leader, members and placement at that poll; classic groups show no generation, so this
        stands in for it. A worker that leaves and comes back is another member. Empty while nothing is held.
    """

    polls: int = 0
    since: float = 0.0
    snapshot: str = ""

    def after(self, checks: tuple[Check, ...], observation: Observation) -> Hold:
        """The hold after one more poll."""
        if overall(checks) is not Verdict.PASS:
            return Hold()
        snapshot = _snapshot(observation)
        if snapshot == self.snapshot:
            return Hold(self.polls + 1, self.since, snapshot)
        return Hold(1, observation.at, snapshot)

    def is_long_enough(self, *, polls: int, seconds: float, now: float) -> bool:
        return self.polls >= max(1, polls) and now - self.since >= seconds


@dataclass
class GateWatch:
    """One gate being waited for; needs nothing but observations, so a task and a trigger can drive it alike.

    :param polls: polls in a row for which every condition must hold.
    :param hold_seconds: how long they must hold at least.
    :param deadline: when the gate is given up, seconds since the epoch.
    :param tasks: the tasks (``connector/number``) that the restarted worker held, whose stand-still is measured.
    :param after_delay_seconds: what the group needs once a rebalance delay is over. A delay that is first seen late
        moves the deadline so far, at most to twice its distance; unset, the deadline stays where it is.
    :param conditions: what is asked; a trigger leaves out what only the hosts tell.
    """

    polls: int
    hold_seconds: float
    deadline: float
    tasks: tuple[str, ...] = ()
    after_delay_seconds: float | None = None
    conditions: tuple[Condition, ...] = CONDITIONS
    checks: tuple[Check, ...] = ()
    _hold: Hold = field(default_factory=Hold)
    _running_since: float | None = None
    _delay: DelayClock = field(default_factory=DelayClock)
    _latest_deadline: float | None = None
    _looked_at: float = 0.0

    def poll(self, expectation: Expectation, observation: Observation) -> Verdict | None:
        """Take one more observation in.

        :returns: the gate's answer, or None while it has to be waited for.
        """
        self.checks = evaluate(expectation, observation, self.conditions)
        self._looked_at = observation.at
        self._hold = self._hold.after(self.checks, observation)
        self._note_delay(observation)
        self._note_running(expectation, observation)
        if self._hold.is_long_enough(polls=self.polls, seconds=self.hold_seconds, now=observation.at):
            return Verdict.PASS
        decisive = [check for check in self.checks if check.decisive and not check.passed]
        if decisive:
            return overall(decisive)
        if observation.at < self.deadline:
            return None
        answer = overall(self.checks)
        if answer is not Verdict.PASS:
            return answer
        if self._hold.since <= self.deadline:  # it began in time, so it may come to its end
            return None
        moving = inconclusive("hold", "every condition holds, but the group keeps moving", "find out what moves it")
        self.checks = (*self.checks, moving)
        return Verdict.INCONCLUSIVE

    def stood_seconds(self, since: float) -> float:
        """How long the tasks stood still, counted from ``since`` (seconds since the epoch)."""
        return max(0.0, (self._running_since or since) - since) if self.tasks else 0.0

    def status_line(self) -> str:
        """What is awaited, and until when, in one line."""
        open_checks = [check for check in self.checks if not check.passed]
        held = len(self.checks) - len(open_checks)
        if not open_checks:
            return f"all {held} conditions hold; watching for {self.hold_seconds:.0f} s that they stay so"
        first = open_checks[0]
        until = time.strftime("%H:%M:%S", time.localtime(self.deadline))
        delay = ""
        if self._delay.delay_ms:
            delay = f"; the rebalance delay ends by {time.strftime('%H:%M:%S', time.localtime(self._delay.ends_at))}"
        return (
            f"{held} of {len(self.checks)} conditions hold; "
            f"awaiting {first.name}: {first.evidence}{delay} (until {until})"
        )

    @property
    def latest_deadline(self) -> float:
        """The gate is given up by then, whatever delay is seen meanwhile; seconds since the epoch."""
        return self.deadline if self._latest_deadline is None else max(self.deadline, self._latest_deadline)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, so that another process can go on waiting; :meth:`from_dict` reads them.

        Renaming a key breaks gates that are being waited for.
        """
        return {
            "polls": self.polls,
            "hold_seconds": self.hold_seconds,
            "deadline": self.deadline,
            "latest_deadline": self.latest_deadline,
            "tasks": list(self.tasks),
            "after_delay_seconds": self.after_delay_seconds,
            "running_since": self._running_since,
            "delay": {"delay_ms": self._delay.delay_ms, "seen_at": self._delay.seen_at},
            "held_since": self._hold.since,
            "snapshot": self._hold.snapshot,
            "looked_at": self._looked_at,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], conditions: tuple[Condition, ...] = CONDITIONS) -> GateWatch:
        """The same gate, to be waited for on: deadline, measured times and what held on the same group are kept.

        Each of the polls is due again, for it may ask more than the ones before; if the last look is long ago, the
        whole hold is.
        """
        watch = cls(
            polls=document["polls"],
            hold_seconds=document["hold_seconds"],
            deadline=document["deadline"],
            tasks=tuple(document["tasks"]),
            after_delay_seconds=document["after_delay_seconds"],
            conditions=conditions,
        )
        watch._running_since = document["running_since"]
        watch._latest_deadline = document["latest_deadline"]
        watch._delay = DelayClock(**document["delay"])
        if time.time() - document["looked_at"] < CARRIED_OVER_SECONDS:
            watch._hold = Hold(0, document["held_since"], document["snapshot"])
        return watch

    def delay_remaining(self, now: float) -> float:
        """Seconds until the rebalance delay is over, counted from when it was first seen; 0 if none runs."""
        return self._delay.remaining(now)

    def _note_delay(self, observation: Observation) -> None:
        if self._latest_deadline is None:
            self._latest_deadline = self.deadline + max(0.0, self.deadline - observation.at)
        if self._delay.note(observation) and self.after_delay_seconds is not None:
            wanted = self._delay.ends_at + self.after_delay_seconds
            self.deadline = min(self._latest_deadline, max(self.deadline, wanted))

    def _note_running(self, expectation: Expectation, observation: Observation) -> None:
        if any(_stands_still(task, expectation, observation) for task in self.tasks):
            self._running_since = None
        elif self._running_since is None:
            self._running_since = observation.at


def connectors_to_heal(expectation: Expectation, observation: Observation) -> dict[str, str]:
    """Connectors with a task that failed in this roll for a reason that one restart may heal, with that reason.

    Connect never restarts a failed task by itself, and a leader that was just bounced is enough to fail a fencing
    round; upstream's own system test ``test_exactly_once_source`` restarts failed tasks once for that.
    """
    found: dict[str, str] = {}
    for connector, status in sorted((observation.statuses or {}).items()):
        for task in status.tasks:
            failed_before = expectation.baseline.tasks.get(f"{connector}/{task.number}") == "FAILED"
            if task.state == "FAILED" and not failed_before and observation.should_run(connector):
                failure = observation.failure_of(connector, task)
                if failure.kind.heals_by_restart:
                    found.setdefault(connector, str(failure.kind))
    return found


def _stands_still(task: str, expectation: Expectation, observation: Observation) -> bool:
    """Whether this task ran before, should run now, and is not reported RUNNING by the very member it is placed on."""
    connector, _, number = task.rpartition("/")
    if expectation.baseline.tasks.get(task) != "RUNNING" or not observation.task_should_run(connector, int(number)):
        return False
    status = (observation.statuses or {}).get(connector)
    reports = [t for t in status.tasks if t.number == int(number)] if status else []
    placed_on = observation.placed_on(connector, int(number))
    return not any(t.state == "RUNNING" and placed_on == [t.worker_id] for t in reports)


def _snapshot(observation: Observation) -> str:
    where = observation.group.placement if observation.group else None
    placed = {w: (sorted(p.connectors), sorted(p.tasks)) for w, p in where.items()} if where else None
    members = sorted(member.member_id for member in observation.members.values())
    text = json.dumps([observation.leader_id, members, placed], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
