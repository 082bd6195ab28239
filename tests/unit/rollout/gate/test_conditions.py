"""Each condition of the gate broken alone: that one answers no (or cannot tell), and all others go on to pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.mode_evidence import ModeVerdict, Running
from airflow_eos_provider.connect.rest import Health
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription
from airflow_eos_provider.rollout.act.decision import expectation
from airflow_eos_provider.rollout.check import Check
from airflow_eos_provider.rollout.gate.conditions import rest
from airflow_eos_provider.rollout.gate.expectation import Baseline, ended_elsewhere, reported_changes
from airflow_eos_provider.rollout.gate.gate import evaluate
from airflow_eos_provider.rollout.hosts.host import Obstacle
from airflow_eos_provider.rollout.hosts.launch import how_to_start
from airflow_eos_provider.rollout.observe.topic_progress import Ends, Held, LogView, Memory, Movement
from airflow_eos_provider.stored import from_json, to_json

W1, W2, W3 = "w1:8083", "w2:8083", "w3:8083"


LONG_AGO = 996_400.0  # when the processes of a fresh cluster started


SUPERVISED = Obstacle("restart", "pid 7 was started by pid 6 (bash)", "end what supervises it")


UNKNOWN_MEMBER = "w9:8083"


FAIL, INCONCLUSIVE = Verdict.FAIL, Verdict.INCONCLUSIVE


Break = Callable[[Any], object]


def answers(gate: Any) -> dict[str, Check]:
    return {check.subject: check for check in evaluate(gate.expected(), gate.cluster.observe())}


def not_passed(gate: Any) -> dict[str, Verdict]:
    return {name: check.verdict for name, check in answers(gate).items() if not check.passed}


NOT_REACHED = Running(None, "its machine is not reached", None, None)


def test_what_stands_against_the_next_restart_only_does_not_fail_this_one(gate: Any) -> None:
    gate.cluster.facts(W2, obstacles=(replace(SUPERVISED, of_next_start=True),))
    assert not_passed(gate) == {}


def test_all_conditions_hold_for_a_worker_that_came_back_well(gate: Any) -> None:
    assert not_passed(gate) == {}
    assert len(answers(gate)) == 11


@pytest.mark.parametrize(
    ("broken", "condition", "verdict", "evidence"),
    [
        # process
        (lambda c: c.start(W2, at=LONG_AGO), "process", FAIL, "from before the restart"),
        (lambda c: c.facts(W2, obstacles=(SUPERVISED,)), "process", FAIL, "pid 7 was started by pid 6"),
        (lambda c: c.facts(W2, is_running=False), "process", FAIL, "does not run"),
        (lambda c: c.facts(W2, is_running=False, running=NOT_REACHED), "process", INCONCLUSIVE, "is not reached"),
        (lambda c: c.facts(W2, digest="edited"), "process", FAIL, "was edited after the roll wrote it"),
        # REST: the restarted worker's silence is its own fault, another one's is not
        (lambda c: c.unhealthy(W2), "REST", FAIL, "w2:8083: still starting (health is starting)"),
        (lambda c: c.worker(W2, root=None, rest_problem="refused"), "REST", FAIL, "w2:8083: still starting (refused)"),
        (lambda c: c.unhealthy(W1), "REST", INCONCLUSIVE, "w1:8083: health is starting"),
        (lambda c: c.kill(W3).prove(W3, ModeVerdict.DISABLED), "REST", INCONCLUSIVE, "w3:8083"),
        # group
        (lambda c: c.join(UNKNOWN_MEMBER), "group", INCONCLUSIVE, "unexpected member w9:8083"),
        (lambda c: c.assign(W3, error=1), "group", FAIL, "assignment error 1"),
        # rebalance delay
        (lambda c: c.assign(W3, delay_ms=293_987), "rebalance delay", FAIL, "294 s"),
        (
            lambda c: c.assign(W1, revoked_tasks=frozenset({("x", 0)})),
            "rebalance delay",
            FAIL,
            "another rebalance follows",
        ),
        (
            lambda c: c.assign(W1, revoked_connectors=frozenset({"x"})),
            "rebalance delay",
            FAIL,
            "another rebalance follows",
        ),
        # config offset
        (lambda c: c.assign(W3, config_offset=39), "config offset", FAIL, "[39, 40]"),
        (
            lambda c: setattr(c, "last_rebalance_offset", 40),
            "config offset",
            FAIL,
            "have not read the record at 40 yet",
        ),
        # mode
        (lambda c: c.prove(W2, ModeVerdict.DISABLED), "mode", FAIL, "w2:8083 runs disabled, expected preparing"),
        (lambda c: c.prove(W2, ModeVerdict.UNKNOWN, "its log is gone"), "mode", INCONCLUSIVE, "its log is gone"),
        # mode of another worker: whoever changed that one, it was not this restart
        (lambda c: c.prove(W1, ModeVerdict.DISABLED), "mode", INCONCLUSIVE, "w1:8083 runs disabled"),
        (lambda c: c.prove(W3, ModeVerdict.ENABLED), "mode", INCONCLUSIVE, "w3:8083 runs enabled"),
        # placement
        (lambda c: c.placed[W1][0].add("gone"), "placement", FAIL, "gone"),
        (lambda c: c.placed[W1][1].add(("gone", 0)), "placement", FAIL, "gone"),
        (lambda c: c.connector("mirror", inconsistent=True), "placement", INCONCLUSIVE, "not complete"),
        # states
        (lambda c: c.task("mirror", 1, state="FAILED", trace="boom\n at x"), "states", FAIL, "mirror-1 is FAILED"),
        (lambda c: c.task("mirror", 1, state="UNASSIGNED"), "states", FAIL, "it was RUNNING before"),
        (lambda c: c.task("mirror", 1, worker_id=W3), "states", FAIL, "reports from w3:8083, but is placed on w2:8083"),
        (lambda c: c.status("mirror", worker_id=W1), "states", FAIL, "reports from w1:8083, but is placed on w3:8083"),
        (lambda c: c.status("sink", state="FAILED"), "states", FAIL, "connector sink is FAILED, it was RUNNING"),
        (lambda c: c.status("sink", tasks=()), "states", FAIL, "sink/0"),
        (lambda c: c.see(statuses=None, statuses_problem="no REST"), "states", INCONCLUSIVE, "no REST"),
    ],
)
def test_one_thing_broken_is_named_by_its_condition_alone(
    gate: Any, broken: Break, condition: str, verdict: Verdict, evidence: str
) -> None:
    broken(gate.cluster)
    assert not_passed(gate) == {condition: verdict}
    assert evidence in answers(gate)[condition].found


# Some breaks cannot come alone: who does not run has no tasks, who is not in the group is given none.


def test_an_unreadable_group_leaves_what_rests_on_it_open(gate: Any) -> None:
    gate.cluster.group_problem = "no broker answers"
    checks = answers(gate)
    open_ones = {name: check.verdict for name, check in checks.items() if not check.passed}
    assert open_ones == dict.fromkeys(("group", "rebalance delay", "config offset", "placement"), INCONCLUSIVE)
    assert {checks[name].found for name in open_ones} == {"no broker answers"}


def test_an_unreadable_config_topic_leaves_what_rests_on_it_open(gate: Any) -> None:
    gate.cluster.see(config=None, config_problem="an open transaction holds it back")
    gate.cluster.status("sink", tasks=())  # nor is it known whether that task is still wanted
    assert not_passed(gate) == dict.fromkeys(("config offset", "placement"), INCONCLUSIVE)
    assert {answers(gate)[name].found for name in not_passed(gate)} == {"an open transaction holds it back"}


def test_a_member_without_an_assignment_yet_is_waited_for(gate: Any) -> None:
    group = gate.cluster.observe().group
    without = tuple(replace(m, assignment=None) if m.worker_id == W2 else m for m in group.members)
    gate.cluster.see(group=replace(group, members=without))
    assert answers(gate)["config offset"].verdict is FAIL
    assert answers(gate)["config offset"].found == "not every member has an assignment"
    assert answers(gate)["placement"].verdict is INCONCLUSIVE
    assert not any(check.decisive for check in answers(gate).values())


def test_a_rebalance_is_waited_for_and_no_member_in_it_is_unknown(gate: Any) -> None:
    """Outside state Stable the broker tells no addresses, so the members' names are not known."""
    gate.cluster.rebalancing()
    check = answers(gate)["group"]
    assert (check.verdict, check.decisive) == (FAIL, False)
    assert check.found == "state PreparingRebalance, 3 members"
    assert not any(check.decisive for check in answers(gate).values())


def test_a_member_whose_bytes_are_not_connects_is_an_unknown_member_when_the_group_is_stable(gate: Any) -> None:
    group = gate.cluster.observe().group
    odd = replace(group.members[0], member_id="x-1", worker_id="x-1", url="", assignment=None, problem="version 9")
    gate.cluster.see(group=replace(group, members=(*group.members, odd)))
    assert answers(gate)["group"].found == "unexpected member x-1"


def test_an_unknown_member_is_not_waited_away(gate: Any) -> None:
    gate.cluster.join(UNKNOWN_MEMBER)
    assert answers(gate)["group"].decisive


@pytest.mark.parametrize(("missing", "verdict"), [(W2, FAIL), (W1, INCONCLUSIVE)])
def test_a_missing_member_is_blamed_on_the_restart_only_if_it_is_the_restarted_one(
    gate: Any, missing: str, verdict: Verdict
) -> None:
    gate.cluster.leave(missing)
    check = answers(gate)["group"]
    assert (check.verdict, check.found) == (verdict, f"missing {missing}")


@pytest.mark.parametrize(
    "leaders",
    [{W2: "connect-w1:8083-1"}, dict.fromkeys((W1, W2, W3), "connect-gone-1")],
    ids=["two leaders", "a leader that is no member"],
)
def test_members_that_do_not_follow_one_leader_do_not_pass(gate: Any, leaders: dict[str, str]) -> None:
    for worker_id, leader in leaders.items():
        gate.cluster.assign(worker_id, leader=leader)
    assert not_passed(gate) == {"group": FAIL}
    assert "do not agree on a leader" in answers(gate)["group"].found


@pytest.mark.parametrize("times", [0, 2])
def test_a_task_that_is_not_placed_exactly_once_does_not_pass(gate: Any, times: int) -> None:
    gate.cluster.place(("mirror", 1), *(W2, W3)[:times])
    assert answers(gate)["placement"].verdict is FAIL
    assert answers(gate)["placement"].found == f"task mirror-1 is placed {times} times"
    assert set(not_passed(gate)) == {"placement", "states"}  # its RUNNING is of nobody, or of one of two


@pytest.mark.parametrize("times", [0, 2])
def test_a_connector_that_is_not_placed_exactly_once_does_not_pass(gate: Any, times: int) -> None:
    for worker_id in (W1, W2, W3):
        gate.cluster.placed[worker_id][0].discard("sink")
    for worker_id in (W2, W3)[:times]:
        gate.cluster.placed[worker_id][0].add("sink")
    assert answers(gate)["placement"].verdict is FAIL
    assert answers(gate)["placement"].found == f"connector sink is placed {times} times"
    assert set(not_passed(gate)) == {"placement", "states"}


def test_a_task_on_a_worker_that_died_without_the_groups_notice_does_not_pass(gate: Any) -> None:
    """Until the session times out the broker still counts it, and REST still says RUNNING for its tasks."""
    gate.cluster.kill(W2)
    found = answers(gate)
    assert found["process"].verdict is FAIL
    assert found["process"].decisive
    assert found["REST"].verdict is FAIL
    assert found["mode"].verdict is INCONCLUSIVE
    assert {"process", "REST", "mode"} == set(not_passed(gate))


def test_running_from_a_worker_that_is_gone_does_not_count(gate: Any) -> None:
    gate.cluster.place(("mirror", 1), W1)
    assert not_passed(gate) == {"states": FAIL}
    assert answers(gate)["states"].found == "task mirror-1 reports from w2:8083, but is placed on w1:8083"


# health


def test_a_worker_too_old_for_health_is_judged_by_its_rest_alone(gate: Any) -> None:
    gate.cluster.worker(W2, health=Health("absent"))
    assert not_passed(gate) == {}


def test_silence_is_no_longer_called_starting_when_the_process_is_old_enough(gate: Any) -> None:
    gate.cluster.unhealthy(W2).at += 3_600.0
    assert answers(gate)["REST"].found == "w2:8083: health is starting"


def test_before_the_first_restart_there_is_no_process_to_judge(gate: Any) -> None:
    expected = expectation(gate.plan, {}, gate.cluster.observe(), gate.baseline)
    assert next(c for c in evaluate(expected, gate.cluster.observe()) if c.subject == "process").passed


# config offset


@pytest.mark.parametrize(
    ("offset", "last", "verdicts"),
    [
        (-1, -1, {}),  # a group without any connector: a worker that has read no record works on offset -1
        (0, 0, {"config offset": FAIL}),  # the very first record may be the one to come
    ],
)
def test_a_group_at_the_beginning_of_the_config_topic(
    gate: Any, offset: int, last: int, verdicts: dict[str, Verdict]
) -> None:
    for worker_id in (W1, W2, W3):
        gate.cluster.assign(worker_id, config_offset=offset)
    gate.cluster.last_rebalance_offset = last
    assert not_passed(gate) == verdicts


def test_the_end_of_the_config_topic_may_run_ahead_of_the_members(gate: Any) -> None:
    """A pause or a session key moves the end without a rebalance; only the last record that causes one counts."""
    observation = gate.cluster.observe()
    assert observation.config.end_offset > 40
    gate.cluster.last_rebalance_offset = 39
    assert not_passed(gate) == {}


# states against the baseline


@pytest.mark.parametrize(
    ("before", "now", "verdicts"),
    [
        # what was broken before is not blamed on the roll, wherever it failed
        ({"mirror/1": "FAILED"}, lambda c: c.task("mirror", 1, state="FAILED", trace="boom"), {}),
        ({"sink": "FAILED"}, lambda c: c.status("sink", state="FAILED", worker_id=W3), {}),
        ({"sink/0": "FAILED"}, lambda c: c.status("sink", tasks=()), {}),
        ({"mirror/1": "FAILED"}, lambda c: c.task("mirror", 1, state="UNASSIGNED"), {"states": FAIL}),
        # and excuses no sibling
        (
            {"mirror/1": "FAILED"},
            lambda c: c.task("mirror", 1, state="FAILED").task("mirror", 2, state="FAILED"),
            {"states": FAIL},
        ),
        ({}, lambda c: c.status("sink", state="PAUSED"), {"states": FAIL}),  # although it should run
        ({}, lambda c: c.delete_connector("sink"), {}),
    ],
)
def test_a_state_is_held_against_the_one_before_the_roll(
    gate: Any, before: dict[str, str], now: Break, verdicts: dict[str, Verdict]
) -> None:
    connectors = {name: state for name, state in before.items() if "/" not in name}
    tasks = {name: state for name, state in before.items() if "/" in name}
    gate.baseline = Baseline({**gate.baseline.connectors, **connectors}, {**gate.baseline.tasks, **tasks})
    now(gate.cluster)
    assert not_passed(gate) == verdicts
    broken = sum(task.state == "FAILED" for each in gate.cluster.statuses.values() for task in each.tasks)
    if not verdicts and broken:
        assert f"{broken} were FAILED before the roll and still are" in answers(gate)["states"].found


def test_a_connector_without_any_status_is_missed(gate: Any) -> None:
    del gate.cluster.statuses["sink"]
    assert not_passed(gate) == {"states": FAIL}
    assert answers(gate)["states"].found == "task sink/0 ran before the roll and has no status now"


@pytest.mark.parametrize(
    "breaks",
    [
        lambda c: c.task("sink", 0, state="FAILED", trace="InvalidTopicException"),
        lambda c: c.status("sink", state="FAILED"),
        lambda c: c.status("sink", tasks=()),
    ],
)
def test_a_connector_that_was_given_another_configuration_since_pauses_the_roll(gate: Any, breaks: Any) -> None:
    breaks(gate.cluster.connector("sink", config_offset=44))
    assert not_passed(gate) == {"states": INCONCLUSIVE}
    assert answers(gate)["states"].found.endswith("its configuration was changed after the roll began")
    gate.cluster.task("mirror", 1, state="FAILED")  # and excuses no other
    assert not_passed(gate) == {"states": FAIL}


def test_a_round_that_is_due_for_another_configuration_is_not_the_rolls_failure(gate_of: Any) -> None:
    gate = gate_of(Mode.ENABLED, Mode.PREPARING)
    gate.cluster.connector("mirror", config_offset=44, pending_fencing=True)
    assert not_passed(gate) == {"fencing record": INCONCLUSIVE}


def test_a_baseline_comes_back_from_the_journal_also_one_without_configurations(gate: Any) -> None:
    document = json.loads(json.dumps(to_json(gate.baseline)))
    assert from_json(Baseline, document) == gate.baseline
    del document["configs"]
    assert not from_json(Baseline, document).was_reconfigured("sink", gate.cluster.observe())


@pytest.mark.parametrize("target_state", ["PAUSED", "STOPPED"])
def test_a_connector_paused_on_purpose_in_mid_roll_is_not_waited_for(gate: Any, target_state: str) -> None:
    gate.cluster.connector("sink", target_state=target_state).status("sink", state=target_state)
    gate.cluster.task("sink", 0, state=target_state)
    assert not_passed(gate) == {}


def test_the_status_that_a_deleted_connector_leaves_for_a_moment_does_not_count(gate: Any) -> None:
    left = gate.cluster.statuses["sink"]
    gate.cluster.delete_connector("sink").statuses["sink"] = left
    assert not_passed(gate) == {}


def test_a_connector_created_in_mid_roll_must_run_like_the_others(gate: Any) -> None:
    gate.cluster.add_connector("new")
    assert not_passed(gate) == {}
    assert "6 tasks run" in answers(gate)["states"].found


@pytest.mark.parametrize("state", ["FAILED", "UNASSIGNED"])
def test_a_new_connectors_trouble_pauses_and_puts_no_worker_back(gate: Any, state: str) -> None:
    gate.cluster.add_connector("new", state=state)
    assert not_passed(gate) == {"states": INCONCLUSIVE}
    assert "was not there before the roll" in answers(gate)["states"].found


def test_a_failure_of_the_roll_outweighs_a_new_connectors_trouble(gate: Any) -> None:
    gate.cluster.add_connector("a-new-one", state="FAILED").task("mirror", 1, state="FAILED")
    assert not_passed(gate) == {"states": FAIL}
    assert "mirror-1" in answers(gate)["states"].found


def test_a_task_taken_away_by_a_smaller_task_set_is_not_missed(gate: Any) -> None:
    mirror = gate.cluster.configs["mirror"]
    gate.cluster.connector("mirror", task_set=replace(mirror.task_set, count=2)).place(("mirror", 2))
    gate.cluster.status("mirror", tasks=gate.cluster.statuses["mirror"].tasks[:2])
    assert not_passed(gate) == {}


def test_only_the_first_line_of_a_trace_is_evidence(gate: Any) -> None:
    gate.cluster.task("mirror", 1, state="FAILED", trace="boom: " + "x" * 500 + "\n\tat secret.Frame")
    evidence = answers(gate)["states"].found
    assert "boom" in evidence
    assert "secret.Frame" not in evidence
    assert len(evidence) < 320


# mode


@pytest.mark.parametrize(
    ("broken", "verdict", "decisive"),
    [
        (lambda c: c.prove(W2, ModeVerdict.DISABLED), FAIL, True),
        (lambda c: c.prove(W2, ModeVerdict.DISABLED).unhealthy(W2), FAIL, False),  # it is waited for while it starts
        (lambda c: c.prove(W2, ModeVerdict.UNKNOWN), INCONCLUSIVE, False),
        # the restarted worker's wrong mode outweighs another's unknown one
        (lambda c: c.prove(W1, ModeVerdict.UNKNOWN).prove(W2, ModeVerdict.DISABLED), FAIL, True),
    ],
)
def test_a_wrong_mode_of_a_healthy_worker_is_not_waited_away(
    gate: Any, broken: Break, verdict: Verdict, decisive: bool
) -> None:
    broken(gate.cluster)
    assert (answers(gate)["mode"].verdict, answers(gate)["mode"].decisive) == (verdict, decisive)


# fencing record


def test_what_cannot_be_read_leaves_the_fencing_record_open(gate_of: Any) -> None:
    gate = gate_of(target=Mode.ENABLED, current=Mode.PREPARING)
    gate.cluster.see(statuses=None, statuses_problem="no REST")
    assert not_passed(gate) == dict.fromkeys(("states", "fencing record"), INCONCLUSIVE)
    assert answers(gate)["fencing record"].found == "no REST"


def test_an_unreadable_config_topic_leaves_the_fencing_record_open(enabling: Any) -> None:
    enabling.cluster.see(config=None, config_problem="held back")
    assert answers(enabling)["fencing record"].verdict is INCONCLUSIVE
    assert answers(enabling)["fencing record"].found == "held back"


@pytest.fixture
def enabling(gate_of: Any) -> Any:
    """w2's gate in the roll to enabled; file-0 runs on w1, mirror's tasks on all three."""
    return gate_of(target=Mode.ENABLED, current=Mode.PREPARING)


def test_the_fencing_record_follows_the_task_set(enabling: Any) -> None:
    assert not_passed(enabling) == {}
    assert answers(enabling)["fencing record"].found == "present for file, mirror"


@pytest.mark.parametrize(
    ("change", "verdicts"),
    [
        (lambda c: c.connector("mirror", pending_fencing=True), {"fencing record": FAIL}),
        (lambda c: c.connector("sink", fencing=None, pending_fencing=True), {}),  # none is due for a sink
        # nor for tasks on preparing workers only
        (lambda c: c.place(("file", 0), W3).task("file", 0, worker_id=W3).connector("file", fencing=None), {}),
        # nor for a paused task: it has not started, so nobody has fenced for it
        (lambda c: c.connector("file", fencing=None, target_state="PAUSED").task("file", 0, state="PAUSED"), {}),
    ],
)
def test_a_fencing_record_is_due_for_what_runs_exactly_once(
    enabling: Any, change: Break, verdicts: dict[str, Verdict]
) -> None:
    change(enabling.cluster)
    assert not_passed(enabling) == verdicts


def test_a_missing_fencing_record_is_named(enabling: Any) -> None:
    enabling.cluster.connector("file", fencing=None)
    assert not_passed(enabling) == {"fencing record": FAIL}
    assert "file runs on an enabled worker" in answers(enabling)["fencing record"].found


def test_no_fencing_record_is_due_while_no_worker_is_enabled(gate: Any) -> None:
    gate.cluster.connector("mirror", fencing=None, pending_fencing=True).connector("file", fencing=None)
    assert not_passed(gate) == {}
    assert answers(gate)["fencing record"].found == "not due: no worker is enabled"


def test_a_fencing_record_is_due_though_only_one_of_many_tasks_is_on_an_enabled_worker(enabling: Any) -> None:
    enabling.cluster.place(("mirror", 0), W3).task("mirror", 0, worker_id=W3)
    enabling.cluster.place(("mirror", 1), W3).task("mirror", 1, worker_id=W3).connector("mirror", pending_fencing=True)
    assert not_passed(enabling) == {}
    enabling.cluster.place(("mirror", 1), W2).task("mirror", 1, worker_id=W2)
    assert not_passed(enabling) == {"fencing record": FAIL}


# The gate's conditions on what the group writes, each broken alone, and what is remembered from look to look


NOW = 1_000_000.0


RESTARTED = NOW - 30.0


OPEN = TransactionDescription(
    "lab-mirror-0",
    TransactionState.ONGOING,
    1,
    0,
    timeout_ms=60_000,
    started_at_ms=int((NOW - 10) * 1000),
    partitions=(("out", 0),),
)


def started(seconds_ago: float) -> TransactionDescription:
    return OPEN._replace(started_at_ms=int((NOW - seconds_ago) * 1000))


def see(gate: Any, **changes: Any) -> None:
    gate.cluster.logs = replace(gate.cluster.logs, **changes)


# transactions


def test_a_transaction_within_its_timeout_is_fine(gate: Any) -> None:
    see(gate, open_transactions=(OPEN,), held=(Held("out", 0, 7, NOW - 60),))
    assert not_passed(gate) == {}
    assert answers(gate)["transactions"].found == "1 open within their timeouts on 9 partitions"


@pytest.mark.parametrize(
    ("changes", "evidence"),
    [
        (
            {"open_transactions": (started(76),)},
            "the transaction of lab-mirror-0 is open (Ongoing) 16 s past its timeout",
        ),
        ({"held": (Held("out", 0, 7, NOW - 31),)}, "out-0 is held at 7 for 31 s by a transaction that no"),
        ({"held": (Held("out", 1, 7, NOW - 31),), "open_transactions": (OPEN,)}, "out-1 is held at 7"),
        ({"unreadable": frozenset({"secret"})}, "secret cannot be read"),
    ],
)
def test_a_transaction_that_does_not_end_pauses_the_roll(gate: Any, changes: dict[str, Any], evidence: str) -> None:
    see(gate, **changes)
    assert not_passed(gate) == {"transactions": INCONCLUSIVE}
    assert evidence in answers(gate)["transactions"].found


@pytest.mark.parametrize(
    "changes",
    [
        {"open_transactions": (started(74),)},  # its coordinator looks every ten seconds
        {"held": (Held("out", 0, 7, NOW - 29),)},  # its markers may be under way
        {"open_transactions": (started(74)._replace(state=TransactionState.PREPARE_COMMIT),)},
    ],
)
def test_what_may_still_end_by_itself_is_left_alone(gate: Any, changes: dict[str, Any]) -> None:
    see(gate, **changes)
    assert not_passed(gate) == {}


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort", "PrepareEpochFence", "of a newer broker"])
def test_a_transaction_whose_end_is_decided_and_does_not_come_is_overdue_like_any(gate: Any, state: str) -> None:
    held = (Held("out", 0, 7, NOW - 76),)
    see(gate, open_transactions=(started(74)._replace(state=TransactionState(state)),), held=held)
    assert not_passed(gate) == {}
    see(gate, open_transactions=(started(76)._replace(state=TransactionState(state)),), held=held)
    assert not_passed(gate) == {"transactions": INCONCLUSIVE}
    check = answers(gate)["transactions"]
    assert f"the transaction of lab-mirror-0 is open ({state}) 16 s past its timeout" in check.found
    assert "does not take its marker" in (check.remedy or "")


def test_topics_that_cannot_be_looked_at_leave_both_open(gate: Any) -> None:
    gate.cluster.see(logs=None, logs_problem="no broker answers")
    assert not_passed(gate) == dict.fromkeys(("transactions", "progress"), INCONCLUSIVE)
    assert {answers(gate)[name].found for name in not_passed(gate)} == {"no broker answers"}


# progress


def moves(gate: Any, **movements: Movement) -> None:
    see(gate, movements=movements)


def test_a_source_that_moved_before_and_stands_since_is_waited_for(gate: Any) -> None:
    moves(gate, mirror=Movement(0, steady_at=RESTARTED - 1, moved_since=RESTARTED - 2))
    assert not_passed(gate) == {"progress": INCONCLUSIVE}
    assert answers(gate)["progress"].found == "mirror moved before the restart and has not since"


def test_a_move_that_began_before_the_restart_is_no_progress(gate: Any) -> None:
    moves(gate, mirror=Movement(4, steady_at=RESTARTED + 1, moved_since=RESTARTED - 0.1))
    assert not_passed(gate) == {"progress": INCONCLUSIVE}


@pytest.mark.parametrize(
    "movement",
    [
        Movement(),  # never seen to move
        Movement(0, steady_at=None, moved_since=RESTARTED - 5),  # it was just given something
        Movement(0, steady_at=RESTARTED - 31, moved_since=RESTARTED - 31),  # idle long before
        Movement(1, steady_at=RESTARTED - 1, moved_since=RESTARTED + 2),  # moves again
    ],
)
def test_a_source_that_was_idle_or_moves_again_owes_nothing(gate: Any, movement: Movement) -> None:
    moves(gate, mirror=movement)
    assert not_passed(gate) == {}


def test_a_source_that_was_paused_meanwhile_owes_nothing(gate: Any) -> None:
    moves(gate, mirror=Movement(0, steady_at=RESTARTED - 1, moved_since=RESTARTED - 2))
    gate.cluster.connector("mirror", target_state="PAUSED")
    assert not_passed(gate) == {}


# what is remembered

OUT = {"mirror": frozenset({"out"})}


def ends(stable: int, end: int) -> dict[tuple[str, int], Ends]:
    return {("out", 0): Ends(stable, end), ("other", 0): Ends(5, 5)}


def test_a_held_partition_is_dated_from_the_first_look_at_that_offset() -> None:
    memory = Memory()
    for at, found in ((1.0, ends(7, 9)), (2.0, ends(7, 12)), (3.0, ends(12, 13)), (4.0, ends(12, 13))):
        memory.take(at, found, OUT)
    assert memory.held == (Held("out", 0, 12, 3.0),)
    memory.take(5.0, ends(13, 13), OUT)
    assert memory.held == ()


def test_a_source_is_steady_after_three_growing_looks_in_a_row() -> None:
    memory = Memory()
    seen = []
    for at, end in enumerate((10, 11, 12, 12, 13, 14, 15, 15), start=1):
        memory.take(float(at), ends(end, end), OUT)
        seen.append(memory.movements["mirror"])
    assert [movement.looks for movement in seen] == [0, 1, 2, 0, 1, 2, 3, 0]
    assert [movement.steady_at for movement in seen] == [None] * 6 + [7.0, 7.0]
    assert [movement.moved_since for movement in seen] == [0.0, 1.0, 2.0, 2.0, 4.0, 5.0, 6.0, 6.0]


def test_only_its_own_topics_move_a_source() -> None:
    memory = Memory()
    memory.take(1.0, {("out", 0): Ends(1, 1), ("other", 0): Ends(5, 5)}, OUT)
    memory.take(2.0, {("out", 0): Ends(1, 1), ("other", 0): Ends(9, 9)}, OUT)
    assert memory.movements["mirror"] == Movement()


def test_the_view_of_a_group_that_writes_nothing_is_empty() -> None:
    assert LogView().held == ()


# A worker that ends in mid-roll and not by the roll: it is named at once, with how it is started


def seen(gate: Any) -> Any:
    return gate.expected(), gate.cluster.observe()


def test_another_worker_that_has_ended_is_named_with_its_start_command(gate: Any) -> None:
    gate.cluster.kill(W3)
    check = rest(*seen(gate))
    assert check.verdict is Verdict.INCONCLUSIVE
    assert not check.decisive, "it may be started, and the gate go on"
    assert check.found == f"{W3} has ended, and not by this roll"
    assert f"start {W3}: connect /etc/connect/w3.properties" in (check.remedy or "")
    assert set(ended_elsewhere(*seen(gate))) == {W3}


def test_the_worker_whose_gate_it_is_and_one_that_was_stopped_before_have_not_ended_elsewhere(gate: Any) -> None:
    gate.cluster.kill(W2)
    assert ended_elsewhere(*seen(gate)) == {}
    expected = gate.expected()
    gate.cluster.kill(W3)
    without = replace(expected, members=expected.members - {W3})
    assert ended_elsewhere(without, gate.cluster.observe()) == {}


def test_a_worker_whose_process_is_not_known_has_not_ended(gate: Any) -> None:
    facts = gate.cluster.workers[W3].facts
    gate.cluster.facts(W3, is_running=False, running=replace(facts.running, alive=None))
    assert ended_elsewhere(*seen(gate)) == {}


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ({}, "start w3:8083 in the usual way"),
        (
            {
                "start": ("java", "-Dssl.key.password=CANARY", "--token", "CANARY", "my file.properties"),
                "cwd": Path("/opt/kafka"),
                "env": {"KAFKA_OPTS": "CANARY"},
                "pid_file": Path("/run/w3.pid"),
                "log": Path("/var/log/w3.log"),
            },
            "start w3:8083: cd /opt/kafka && java '-Dssl.key.password=***' --token '***' 'my file.properties', with "
            "the variables that its description sets (KAFKA_OPTS), and its pid in /run/w3.pid, its log /var/log/w3.log "
            "may say why it ended",
        ),
    ],
)
def test_how_a_worker_is_started_is_read_from_its_description_without_its_secrets(
    description: dict[str, Any], words: str
) -> None:
    assert how_to_start(WorkerDescription("http://w3:8083", **description)) == words


def test_it_is_said_once_when_a_worker_has_ended_and_once_when_it_is_back(gate: Any) -> None:
    before: set[str] = set()

    def look() -> list[str]:
        ended = ended_elsewhere(*seen(gate))
        changes = list(reported_changes(before, ended))
        before.clear()
        before.update(ended)
        return changes

    assert look() == []
    gate.cluster.kill(W3)
    (line,) = look()
    assert line.startswith(f"{W3} has ended, and not by this roll. The roll waits for it: start {W3}: connect ")
    assert look() == []
    gate.cluster.start(W3, at=gate.cluster.at)
    assert look() == [f"{W3} runs again; the roll continues when it is a healthy member."]
    assert look() == []
