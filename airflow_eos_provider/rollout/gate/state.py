"""One gate that is waited for: the same values in the roll, in the trigger and in Airflow's database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.observe.topic_progress import Memory
from airflow_eos_provider.stored import from_json, to_json

#: A hold that another process has seen goes on if its last look is no older: about two looks, and a task's start.
CARRIED_OVER_SECONDS = 30.0

#: A process that comes back when the gate's time is over, or nearly, has this many seconds for its own look.
LAST_LOOK_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Hold:
    """How long the gate has held so far.

    :param polls: polls in a row in which every condition held on the same group.
    :param since: when the first of them was complete, seconds since the epoch. The hold lasts until the last of them
        was begun: nothing that it has seen is known to be younger.
    :param snapshot: digest of leader, members and placement at that poll; classic groups show no generation, so this
        stands in for it. A worker that leaves and comes back is another member. Empty while nothing is held.
    """

    polls: int = 0
    since: float = 0.0
    snapshot: str = ""

    def on(self, snapshot: str, at: float) -> Hold:
        """The hold after one more poll at which every condition held."""
        return Hold(self.polls + 1, self.since, snapshot) if snapshot == self.snapshot else Hold(1, at, snapshot)

    def is_long_enough(self, *, polls: int, seconds: float, now: float) -> bool:
        return self.polls >= max(1, polls) and now - self.since >= seconds


@dataclass(frozen=True, slots=True)
class DelayClock:
    """The leader's rebalance delay, counted from when it was first seen.

    A member's assignment has the delay of the last rebalance, and shows the same ``293987`` until the next one. So the
    remaining delay is counted from the poll that first saw a figure: it ends late by at most one poll interval, never
    early.

    :param delay_ms: the delay as the members report it; 0 if none runs.
    :param seen_at: when that figure was first seen, seconds since the epoch.
    """

    delay_ms: int = 0
    seen_at: float = 0.0

    def after(self, observation: Observation) -> DelayClock:
        """The clock after one more look; the same one if the members report no other figure."""
        if observation.group is None or not observation.group.is_stable:
            return self  # the members report nothing during a rebalance
        delay_ms = observation.group.delay_ms
        return self if delay_ms == self.delay_ms else DelayClock(delay_ms, observation.at)

    @property
    def ends_at(self) -> float:
        """When the delay is over, seconds since the epoch; 0 if none runs."""
        return self.seen_at + self.delay_ms / 1000 if self.delay_ms else 0.0

    def remaining(self, now: float) -> float:
        """Seconds until it is over; 0 if none runs or its time is over."""
        return max(0.0, self.ends_at - now)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateState:
    """A gate that is waited for, and what was seen and done while it was; times are seconds since the epoch.

    A roll, a trigger and a further process of the task pass it on; :func:`~airflow_eos_provider.rollout.gate.gate.poll`
    takes one look and returns the next state.

    :param worker_id: whose gate; None where the group is waited for before a restart.
    :param restart_id: the restart that it follows, see :attr:`Step.restart_id`; 0 before the first one.
    :param polls: polls in a row for which every condition must hold.
    :param hold_seconds: how long they must hold at least.
    :param deadline: when the gate is given up. A rebalance delay that is seen late moves it, a deferral does not.
    :param latest_deadline: the gate is given up by then, whatever delay is seen.
    :param after_delay_seconds: what the group needs once a rebalance delay is over; None if the deadline is fixed.
    :param tasks: the tasks (``connector/number``) that the restarted worker held, whose downtime is measured.
    :param running_since: when all of ``tasks`` were first seen running again; None while one is not.
    :param true_since: by condition, when it was first seen to hold and has held since; without those that do not.
    :param looked_at: when the last look was complete.
    :param config_topic: like ``offsets_topic``, as the workers' configurations say, which a trigger cannot read.
    :param look_at: when a process looks at the hosts in any case.
    :param failed_tasks_restarted: whether failed tasks were restarted at this gate; that is done once.
    :param delay_ended_for: workers on whose behalf the leader was restarted once more; that is done once each.
    :param silent: other workers that did not answer when the gate was handed over; a process has looked at their hosts.
    """

    #: Of a stored gate. Renaming a field needs another one.
    SCHEMA: ClassVar[int] = 3

    rollout_id: str
    worker_id: str | None
    restart_id: float
    polls: int
    hold_seconds: float
    deadline: float
    latest_deadline: float
    after_delay_seconds: float | None = None
    tasks: tuple[str, ...] = ()
    hold: Hold = Hold()
    delay: DelayClock = DelayClock()
    running_since: float | None = None
    true_since: Mapping[str, float] = field(default_factory=dict)
    looked_at: float = 0.0
    memory: Memory = field(default_factory=Memory)
    config_topic: str | None = None
    offsets_topic: str | None = None
    look_at: float = 0.0
    failed_tasks_restarted: bool = False
    delay_ended_for: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()

    def is_for(self, worker_id: str | None, restart_id: float) -> bool:
        return (self.worker_id, self.restart_id) == (worker_id, restart_id)

    def taken_up(self, now: float) -> GateState:
        """The same gate in another process, which may ask more conditions: each of the polls is due again.

        If the last look is long ago, the whole hold is.
        """
        is_recent = now - self.looked_at < CARRIED_OVER_SECONDS
        return replace(self, hold=replace(self.hold, polls=0) if is_recent else Hold())

    def with_time_for_a_look(self, now: float) -> GateState:
        """The same gate with time for a look of this process, which may come back after the deadline."""
        deadline = max(self.deadline, now + LAST_LOOK_SECONDS)
        return replace(self, deadline=deadline, latest_deadline=max(self.latest_deadline, deadline))

    def pause_seconds(self, poll_interval_seconds: float, *, now: float) -> float:
        """The pause before the next look: the interval, or the rest of the hold where that is shorter."""
        rest = self.hold.since + self.hold_seconds - now
        return min(poll_interval_seconds, rest) if self.hold.polls and rest > 0 else poll_interval_seconds

    def downtime_seconds(self, since: float) -> float:
        """How long the tasks were unassigned, counted from ``since``."""
        return max(0.0, (self.running_since or since) - since) if self.tasks else 0.0

    @property
    def subject(self) -> str:
        """Whose gate, in words: the worker, or the restart that it comes before."""
        return self.worker_id or ("before the next restart" if self.restart_id else "before the first restart")

    def __str__(self) -> str:
        return f"waiting for {'the gate of' if self.worker_id else 'a stable group,'} {self.subject}"

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it, for a trigger and for the task state store; :meth:`from_dict` reads it."""
        found: dict[str, Any] = to_json(self)
        return found

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> GateState:
        """What :meth:`to_dict` gave."""
        try:
            return from_json(cls, document)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"A gate that is waited for was stored by another version of this package: {error}."
            ) from error
