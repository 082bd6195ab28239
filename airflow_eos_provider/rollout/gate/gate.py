"""May the next worker be restarted? This module answers it (requirement A4).

The answer is yes when every check (``conditions.py``) has passed, on an unchanged group, for several polls in a row
that together span a heartbeat and a rebalance (``settings.py``). It is no, or inconclusive, when a check can no longer
pass, or has not passed by the deadline.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from airflow_eos_provider.finding import Verdict, overall
from airflow_eos_provider.rollout.answer import Check, inconclusive
from airflow_eos_provider.rollout.gate.conditions import CONDITIONS, PROCESS, Condition
from airflow_eos_provider.rollout.gate.expectation import Expectation
from airflow_eos_provider.rollout.gate.state import GateState, Hold
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.observe.reported_states import reports

#: A look's oldest part may be so old when the look is complete. A worker that answers does so within eight seconds
#: (``observer.py``); what took longer may have ended since.
FRESH_SECONDS = 10.0


def evaluate(
    expectation: Expectation, observation: Observation, conditions: tuple[Condition, ...] = CONDITIONS
) -> tuple[Check, ...]:
    """All conditions, in the order in which an operator would ask for them; and the look itself, if it is no evidence.

    The parts of a look are not of one moment, so it counts by its oldest one.
    """
    checks = tuple(condition(expectation, observation) for condition in conditions)
    stale = _stale(expectation, observation)
    return checks if stale is None else (*checks, stale)


def _stale(expectation: Expectation, observation: Observation) -> Check | None:
    """Why a look is no evidence of this moment, whatever it has seen; None if it is."""
    if observation.begun_at < expectation.restarted_after:
        return inconclusive("look", "it began before the restart, so it may show the state before it")
    if observation.took_seconds > FRESH_SECONDS:
        return inconclusive(
            "look",
            f"it took {observation.took_seconds:.0f} s, so its first results may be outdated",
            "find out which worker or broker answers slowly ('eos status')",
        )
    return None


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """What one look at a gate gave.

    :param checks: the answer of each condition.
    :param verdict: the gate's answer; None while it has to be waited for.
    """

    checks: tuple[Check, ...]
    verdict: Verdict | None

    @property
    def open_checks(self) -> tuple[Check, ...]:
        """The conditions that do not hold."""
        return tuple(check for check in self.checks if not check.passed)

    @property
    def refused_by(self) -> frozenset[str]:
        """The conditions that do not hold and that waiting cannot change, by name."""
        return frozenset(check.subject for check in self.open_checks if check.decisive)

    def status_line(self, gate: GateState) -> str:
        """What is awaited, and until when, in one line."""
        held = len(self.checks) - len(self.open_checks)
        if not self.open_checks:
            return f"all {held} checks pass; confirming that for {gate.hold_seconds:.0f} s"
        first = self.open_checks[0]
        delay = f"; the rebalance delay ends by {_clock(gate.delay.ends_at)}" if gate.delay.delay_ms else ""
        return (
            f"{held} of {len(self.checks)} checks pass; "
            f"awaiting {first.subject}: {first.found}{delay} (until {_clock(gate.deadline)})"
        )


def poll(
    gate: GateState,
    expectation: Expectation,
    observation: Observation,
    conditions: tuple[Condition, ...] = CONDITIONS,
) -> tuple[GateState, GateAnswer]:
    """The gate after one more look, and its answer; the same for a roll and for a trigger."""
    checks = evaluate(expectation, observation, conditions)
    holds = overall(checks) is Verdict.PASS
    gate = replace(
        _with_delay(gate, observation),
        hold=gate.hold.on(_snapshot(observation), observation.at) if holds else Hold(),
        running_since=_running_since(gate, expectation, observation),
        true_since=_true_since(gate, checks, observation),
        looked_at=observation.at,
    )
    return gate, _answer(gate, checks, observation)


def _answer(gate: GateState, checks: tuple[Check, ...], observation: Observation) -> GateAnswer:
    if gate.hold.is_long_enough(polls=gate.polls, seconds=gate.hold_seconds, now=observation.begun_at):
        return GateAnswer(checks, Verdict.PASS)
    decisive = [check for check in checks if check.decisive and not check.passed]
    if decisive:
        return GateAnswer(checks, overall(decisive))
    if observation.at < gate.deadline:
        return GateAnswer(checks, None)
    verdict = overall(checks)
    if verdict is Verdict.FAIL and _is_unseen(checks):
        verdict = Verdict.INCONCLUSIVE  # its silence is its machine's; its file could not be put back there either
    if verdict is not Verdict.PASS:
        return GateAnswer(checks, verdict)
    if gate.hold.since <= gate.deadline:  # it began in time, so it may come to its end
        return GateAnswer(checks, None)
    moving = inconclusive("hold", "every check passes, but the group keeps rebalancing", "find out what causes it")
    return GateAnswer((*checks, moving), Verdict.INCONCLUSIVE)


def _is_unseen(checks: Iterable[Check]) -> bool:
    """Whether it is not known if the restarted worker's process runs: its machine is not reached."""
    return any(check.subject == PROCESS and check.verdict is Verdict.INCONCLUSIVE for check in checks)


def _with_delay(gate: GateState, observation: Observation) -> GateState:
    """A delay that is first seen late moves the deadline, at most to the latest one."""
    delay = gate.delay.after(observation)
    if delay == gate.delay or not delay.delay_ms or gate.after_delay_seconds is None:
        return replace(gate, delay=delay)
    wanted = max(gate.deadline, delay.ends_at + gate.after_delay_seconds)
    return replace(gate, delay=delay, deadline=min(gate.latest_deadline, wanted))


def _true_since(gate: GateState, checks: Iterable[Check], observation: Observation) -> dict[str, float]:
    """Also of conditions that this look did not ask for, since a trigger leaves some out."""
    since = dict(gate.true_since)
    for check in checks:
        if check.passed:
            since.setdefault(check.subject, observation.at)
        else:
            since.pop(check.subject, None)
    return since


def _running_since(gate: GateState, expectation: Expectation, observation: Observation) -> float | None:
    if any(_is_down(task, expectation, observation) for task in gate.tasks):
        return None
    return observation.at if gate.running_since is None else gate.running_since


def connectors_to_restart(expectation: Expectation, observation: Observation) -> dict[str, str]:
    """Connectors with a task that failed in this roll for a reason that one restart may end, with that reason.

    Connect never restarts a failed task by itself, and a leader that was just bounced is enough to fail a fencing
    round; upstream's own system test ``test_exactly_once_source`` restarts failed tasks once for that.
    """
    found: dict[str, str] = {}
    for report in reports(observation):
        name, number = report.connector, report.task
        failed_before = expectation.baseline.state(name, number) == "FAILED"
        if number is None or report.state != "FAILED" or failed_before or not observation.should_run(name):
            continue
        failure = observation.failure_of(name, number)
        if failure.kind.is_mended_by_restart:
            found.setdefault(name, str(failure.kind))
    return found


def _is_down(task: str, expectation: Expectation, observation: Observation) -> bool:
    """Whether this task ran before, should run now, and is not reported RUNNING by the very member it is placed on."""
    connector, _, number = task.rpartition("/")
    if expectation.baseline.tasks.get(task) != "RUNNING" or not observation.should_run(connector, int(number)):
        return False
    status = (observation.statuses or {}).get(connector)
    reported = [t for t in status.tasks if t.number == int(number)] if status else []
    placed_on = observation.placed_on(connector, int(number))
    return not any(t.state == "RUNNING" and placed_on == [t.worker_id] for t in reported)


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def _snapshot(observation: Observation) -> str:
    where = observation.group.placement if observation.group else None
    placed = {w: (sorted(p.connectors), sorted(p.tasks)) for w, p in where.items()} if where else None
    members = sorted(member.member_id for member in observation.members.values())
    text = json.dumps([observation.leader_id, members, placed], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
