"""Each condition of the gate broken alone: that one answers no (or cannot tell), and all others go on to pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.mode_evidence import ModeVerdict, Running
from airflow_eos_provider.connect.rest import Health
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription
from airflow_eos_provider.rollout.act.decision import expectation
from airflow_eos_provider.rollout.gate.expectation import Baseline, ended_elsewhere, reported_changes
from airflow_eos_provider.rollout.gate.gate import evaluate
from airflow_eos_provider.rollout.hosts.host import Obstacle
from airflow_eos_provider.rollout.hosts.launch import how_to_start
from airflow_eos_provider.rollout.observe.topic_progress import Ends, Held, Memory, Movement
from airflow_eos_provider.stored import from_json, to_json
from tests.unit.rollout.conftest import ENABLED, FOREIGN, LONG_AGO, NOW, PREPARING, W1, W2, W3, Cluster, Gate

FAIL, INCONCLUSIVE = Verdict.FAIL, Verdict.INCONCLUSIVE
RESTARTED = Gate.RESTARTED_AFTER

SUPERVISED = Obstacle("restart", "pid 7 was started by pid 6 (bash)", "end what supervises it")
NOT_REACHED = Running(None, "its machine is not reached", None, None)

OPEN = TransactionDescription(
    "lab-mirror-0", TransactionState.ONGOING, 1, 0, 60_000, int((NOW - 10) * 1000), partitions=(("out", 0),)
)

Break = Callable[[Any], object]


def started(seconds_ago: float) -> TransactionDescription:
    return OPEN._replace(started_at_ms=int((NOW - seconds_ago) * 1000))


def moved(movement: Movement) -> Break:
    return lambda cluster: cluster.log(movements={"mirror": movement})


def follow(leader: str, *worker_ids: str) -> Break:
    return lambda cluster: [cluster.assign(worker_id, leader=leader) for worker_id in worker_ids]


def sink_placed_on(*worker_ids: str) -> Break:
    """The connector itself, not its task."""

    def place(cluster: Any) -> None:
        for worker_id, (connectors, _) in cluster.placed.items():
            connectors.discard("sink")
            connectors.update({"sink"} if worker_id in worker_ids else ())

    return place


def config_topic_begins(offset: int, last: int) -> Break:
    def begin(cluster: Any) -> None:
        for worker_id in (W1, W2, W3):
            cluster.assign(worker_id, config_offset=offset)
        cluster.last_rebalance_offset = last

    return begin


def odd_member(cluster: Any) -> None:
    """A member whose bytes are not Connect's."""
    group = cluster.observe().group
    odd = replace(group.members[0], member_id="x-1", worker_id="x-1", url="", assignment=None, problem="version 9")
    cluster.see(group=replace(group, members=(*group.members, odd)))


def without_assignment(cluster: Any) -> None:
    group = cluster.observe().group
    without = tuple(replace(m, assignment=None) if m.worker_id == W2 else m for m in group.members)
    cluster.see(group=replace(group, members=without))


def status_of_a_deleted_connector(cluster: Any) -> None:
    left = cluster.statuses["sink"]
    cluster.delete_connector("sink").statuses["sink"] = left


def smaller_task_set(cluster: Any) -> None:
    task_set = replace(cluster.configs["mirror"].task_set, count=2)
    cluster.connector("mirror", task_set=task_set).place(("mirror", 2))
    cluster.status("mirror", tasks=cluster.statuses["mirror"].tasks[:2])


def paused(target_state: str) -> Break:
    return lambda c: (
        c.connector("sink", target_state=target_state)
        .status("sink", state=target_state)
        .task("sink", 0, state=target_state)
    )


def test_all_conditions_hold_for_a_worker_that_came_back_well(gate: Gate) -> None:
    assert gate.not_passed() == {}
    assert len(gate.answers()) == 11


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
        (lambda c: c.silent(W2, "refused"), "REST", FAIL, "w2:8083: still starting (refused)"),
        (lambda c: vars(c.unhealthy(W2)).update(at=NOW + 3_600.0), "REST", FAIL, "w2:8083: health is starting"),
        (lambda c: c.unhealthy(W1), "REST", INCONCLUSIVE, "w1:8083: health is starting"),
        (lambda c: c.kill(W3).prove(W3, ModeVerdict.DISABLED), "REST", INCONCLUSIVE, "w3:8083 has ended, and not by"),
        # group
        (lambda c: c.join(FOREIGN), "group", INCONCLUSIVE, "unexpected member w9:8083"),
        (lambda c: c.assign(W3, error=1), "group", FAIL, "assignment error 1"),
        (follow("connect-w1:8083-1", W2), "group", FAIL, "do not agree on a leader"),
        (follow("connect-gone-1", W1, W2, W3), "group", FAIL, "do not agree on a leader"),
        # rebalance delay
        (lambda c: c.assign(W3, delay_ms=293_987), "rebalance delay", FAIL, "294 s"),
        (lambda c: c.assign(W1, revoked_tasks=frozenset({("x", 0)})), "rebalance delay", FAIL, "another rebalance"),
        (lambda c: c.assign(W1, revoked_connectors=frozenset({"x"})), "rebalance delay", FAIL, "another rebalance"),
        # config offset
        (lambda c: c.assign(W3, config_offset=39), "config offset", FAIL, "[39, 40]"),
        (lambda c: setattr(c, "last_rebalance_offset", 40), "config offset", FAIL, "have not read the record at 40"),
        (config_topic_begins(0, last=0), "config offset", FAIL, "have not read the record at 0"),
        # mode
        (lambda c: c.prove(W2, ModeVerdict.DISABLED), "mode", FAIL, "w2:8083 runs disabled, expected preparing"),
        (lambda c: c.prove(W2, ModeVerdict.UNKNOWN, "its log is gone"), "mode", INCONCLUSIVE, "its log is gone"),
        # mode of another worker: whoever changed that one, it was not this restart
        (lambda c: c.prove(W1, ModeVerdict.DISABLED), "mode", INCONCLUSIVE, "w1:8083 runs disabled"),
        (lambda c: c.prove(W3, ModeVerdict.ENABLED), "mode", INCONCLUSIVE, "w3:8083 runs enabled"),
        # and what is not known of it weighs less than what is wrong with the restarted one
        (lambda c: c.prove(W1, ModeVerdict.UNKNOWN).prove(W2, ModeVerdict.DISABLED), "mode", FAIL, "w2:8083 runs dis"),
        # placement
        (lambda c: c.placed[W1][0].add("gone"), "placement", FAIL, "gone"),
        (lambda c: c.placed[W1][1].add(("gone", 0)), "placement", FAIL, "gone"),
        (lambda c: c.connector("mirror", inconsistent=True), "placement", INCONCLUSIVE, "not complete"),
        # states
        (lambda c: c.task("mirror", 1, state="FAILED", trace="boom\n at x"), "states", FAIL, "mirror-1 is FAILED"),
        (lambda c: c.task("mirror", 1, state="UNASSIGNED"), "states", FAIL, "it was RUNNING before"),
        (lambda c: c.task("mirror", 1, worker_id=W3), "states", FAIL, "reports from w3:8083, but is placed on w2:8083"),
        (lambda c: c.place(("mirror", 1), W1), "states", FAIL, "reports from w2:8083, but is placed on w1:8083"),
        (lambda c: c.status("mirror", worker_id=W1), "states", FAIL, "reports from w1:8083, but is placed on w3:8083"),
        (lambda c: c.status("sink", state="FAILED"), "states", FAIL, "connector sink is FAILED, it was RUNNING"),
        (lambda c: c.status("sink", state="PAUSED"), "states", FAIL, "connector sink is PAUSED"),  # it should run
        (lambda c: c.status("sink", tasks=()), "states", FAIL, "sink/0"),
        (lambda c: c.statuses.pop("sink"), "states", FAIL, "task sink/0 ran before the roll and has no status now"),
        (lambda c: c.see(statuses=None, statuses_problem="no REST"), "states", INCONCLUSIVE, "no REST"),
        # a new connector's trouble puts no worker back, and hides no failure of the roll
        (lambda c: c.add_connector("new", state="FAILED"), "states", INCONCLUSIVE, "was not there before the roll"),
        (lambda c: c.add_connector("new", state="UNASSIGNED"), "states", INCONCLUSIVE, "was not there before the roll"),
        (
            lambda c: c.add_connector("a-new-one", state="FAILED").task("mirror", 1, state="FAILED"),
            "states",
            FAIL,
            "mirror-1",
        ),
        # a transaction that does not end
        (
            lambda c: c.log(open_transactions=(started(76),)),
            "transactions",
            INCONCLUSIVE,
            "the transaction of lab-mirror-0 is open (Ongoing) 16 s past its timeout",
        ),
        (
            lambda c: c.log(held=(Held("out", 0, 7, NOW - 31),)),
            "transactions",
            INCONCLUSIVE,
            "out-0 is held at 7 for 31 s by a transaction that no",
        ),
        (
            lambda c: c.log(held=(Held("out", 1, 7, NOW - 31),), open_transactions=(OPEN,)),
            "transactions",
            INCONCLUSIVE,
            "out-1 is held at 7",
        ),
        (lambda c: c.log(unreadable=frozenset({"secret"})), "transactions", INCONCLUSIVE, "secret cannot be read"),
        # progress: a move that began before the restart is none
        (
            moved(Movement(0, steady_at=RESTARTED - 1, moved_since=RESTARTED - 2)),
            "progress",
            INCONCLUSIVE,
            "mirror moved before the restart and has not since",
        ),
        (
            moved(Movement(4, steady_at=RESTARTED + 1, moved_since=RESTARTED - 0.1)),
            "progress",
            INCONCLUSIVE,
            "mirror moved before the restart and has not since",
        ),
    ],
)
def test_one_thing_broken_is_named_by_its_condition_alone(
    gate: Gate, broken: Break, condition: str, verdict: Verdict, evidence: str
) -> None:
    broken(gate.cluster)
    assert gate.not_passed() == {condition: verdict}
    assert evidence in gate.answers()[condition].found


@pytest.mark.parametrize(
    "fine",
    [
        lambda c: c.facts(W2, obstacles=(replace(SUPERVISED, of_next_start=True),)),  # against the next restart only
        lambda c: c.worker(W2, health=Health("absent")),  # too old for /health: its REST alone counts
        config_topic_begins(-1, last=-1),  # without any connector: who has read no record works on offset -1
        lambda c: setattr(c, "last_rebalance_offset", 39),  # the topic's end is ahead: a pause causes no rebalance
        paused("PAUSED"),
        paused("STOPPED"),
        lambda c: c.delete_connector("sink"),
        status_of_a_deleted_connector,
        lambda c: c.add_connector("new"),
        smaller_task_set,
        lambda c: c.connector("mirror", fencing=None, pending_fencing=True),  # due only once a worker is enabled
        # a transaction that may still end by itself: its coordinator looks every ten seconds, markers take a moment
        lambda c: c.log(open_transactions=(started(74),)),
        lambda c: c.log(held=(Held("out", 0, 7, NOW - 29),)),
        lambda c: c.log(open_transactions=(started(74)._replace(state=TransactionState.PREPARE_COMMIT),)),
        # a source that was idle, or moves again
        moved(Movement()),
        moved(Movement(0, steady_at=None, moved_since=RESTARTED - 5)),  # it was just given something
        moved(Movement(0, steady_at=RESTARTED - 31, moved_since=RESTARTED - 31)),  # idle long before
        moved(Movement(1, steady_at=RESTARTED - 1, moved_since=RESTARTED + 2)),
        lambda c: moved(Movement(0, steady_at=RESTARTED - 1))(c.connector("mirror", target_state="PAUSED")),
    ],
)
def test_what_is_in_order_or_meant_passes(gate: Gate, fine: Break) -> None:
    fine(gate.cluster)
    assert gate.not_passed() == {}


# Some breaks cannot come alone: who does not run has no tasks, who is not in the group is given none.


@pytest.mark.parametrize(
    ("broken", "conditions", "evidence"),
    [
        (
            lambda c: setattr(c, "group_problem", "no broker answers"),
            ("group", "rebalance delay", "config offset", "placement"),
            "no broker answers",
        ),
        # nor is it known whether that task is still wanted
        (
            lambda c: c.see(config=None, config_problem="held back").status("sink", tasks=()),
            ("config offset", "placement"),
            "held back",
        ),
        (lambda c: c.see(logs=None, logs_problem="no broker"), ("transactions", "progress"), "no broker"),
    ],
)
def test_what_cannot_be_read_leaves_what_rests_on_it_open(
    gate: Gate, broken: Break, conditions: tuple[str, ...], evidence: str
) -> None:
    broken(gate.cluster)
    assert gate.not_passed() == dict.fromkeys(conditions, INCONCLUSIVE)
    assert {gate.answers()[name].found for name in conditions} == {evidence}


@pytest.mark.parametrize(
    ("broken", "condition", "verdict", "found"),
    [
        (without_assignment, "config offset", FAIL, "not every member has an assignment"),
        # outside state Stable the broker tells no addresses, so the members' names are not known
        (lambda c: c.rebalancing(), "group", FAIL, "state PreparingRebalance, 3 members"),
        (odd_member, "group", INCONCLUSIVE, "unexpected member x-1"),
        # blamed on the restart only if it is the restarted one
        (lambda c: c.leave(W2), "group", FAIL, f"missing {W2}"),
        (lambda c: c.leave(W1), "group", INCONCLUSIVE, f"missing {W1}"),
        # its RUNNING is of nobody, or of one of two
        (lambda c: c.place(("mirror", 1)), "placement", FAIL, "task mirror-1 is placed 0 times"),
        (lambda c: c.place(("mirror", 1), W2, W3), "placement", FAIL, "task mirror-1 is placed 2 times"),
        (sink_placed_on(), "placement", FAIL, "connector sink is placed 0 times"),
        (sink_placed_on(W2, W3), "placement", FAIL, "connector sink is placed 2 times"),
    ],
)
def test_what_breaks_several_conditions_is_named_by_its_own(
    gate: Gate, broken: Break, condition: str, verdict: Verdict, found: str
) -> None:
    broken(gate.cluster)
    answer = gate.answers()[condition]
    assert (answer.verdict, answer.found) == (verdict, found)
    if verdict is FAIL:
        assert not any(check.decisive for check in gate.answers().values()), "it is waited for"
    if condition == "placement":
        assert set(gate.not_passed()) == {"placement", "states"}


def test_a_task_on_a_worker_that_died_without_the_groups_notice_does_not_pass(gate: Gate) -> None:
    """Until the session times out the broker still counts it, and REST still says RUNNING for its tasks."""
    gate.cluster.kill(W2)
    assert gate.not_passed() == {"process": FAIL, "REST": FAIL, "mode": INCONCLUSIVE}


def test_before_the_first_restart_there_is_no_process_to_judge(gate: Gate) -> None:
    expected = expectation(gate.plan, {}, gate.cluster.observe(), gate.baseline)
    assert next(c for c in evaluate(expected, gate.cluster.observe()) if c.subject == "process").passed


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
    ],
)
def test_a_state_is_held_against_the_one_before_the_roll(
    gate: Gate, before: dict[str, str], now: Break, verdicts: dict[str, Verdict]
) -> None:
    connectors = {name: state for name, state in before.items() if "/" not in name}
    tasks = {name: state for name, state in before.items() if "/" in name}
    gate.baseline = Baseline({**gate.baseline.connectors, **connectors}, {**gate.baseline.tasks, **tasks})
    now(gate.cluster)
    assert gate.not_passed() == verdicts
    broken = sum(task.state == "FAILED" for each in (gate.cluster.statuses or {}).values() for task in each.tasks)
    if not verdicts and broken:
        assert f"{broken} were FAILED before the roll and still are" in gate.answers()["states"].found


@pytest.mark.parametrize(
    "breaks",
    [
        lambda c: c.task("sink", 0, state="FAILED", trace="InvalidTopicException"),
        lambda c: c.status("sink", state="FAILED"),
        lambda c: c.status("sink", tasks=()),
    ],
)
def test_a_connector_that_was_given_another_configuration_since_pauses_the_roll(gate: Gate, breaks: Break) -> None:
    breaks(gate.cluster.connector("sink", config_offset=44))
    assert gate.not_passed() == {"states": INCONCLUSIVE}
    assert gate.answers()["states"].found.endswith("its configuration was changed after the roll began")
    gate.cluster.task("mirror", 1, state="FAILED")  # and excuses no other
    assert gate.not_passed() == {"states": FAIL}


def test_a_baseline_comes_back_from_the_journal_also_one_without_configurations(gate: Gate) -> None:
    document = json.loads(json.dumps(to_json(gate.baseline)))
    assert from_json(Baseline, document) == gate.baseline
    del document["configs"]
    assert not from_json(Baseline, document).was_reconfigured("sink", gate.cluster.observe())


def test_only_the_first_line_of_a_trace_is_evidence(gate: Gate) -> None:
    gate.cluster.task("mirror", 1, state="FAILED", trace="boom: " + "x" * 500 + "\n\tat secret.Frame")
    evidence = gate.answers()["states"].found
    assert "boom" in evidence
    assert "secret.Frame" not in evidence
    assert len(evidence) < 320


# fencing record: w2's gate in the roll to enabled; file-0 runs on w1, mirror's tasks on all three


def only_on_preparing(cluster: Any, *tasks: tuple[str, int]) -> Any:
    for task in tasks:
        cluster.place(task, W3).task(*task, worker_id=W3)
    return cluster


@pytest.mark.parametrize(
    ("change", "verdicts", "found"),
    [
        (lambda c: c, {}, "present for file, mirror"),
        (lambda c: c.connector("file", fencing=None), {"fencing record": FAIL}, "file runs on an enabled worker"),
        (lambda c: c.connector("mirror", pending_fencing=True), {"fencing record": FAIL}, "mirror runs on an enabled"),
        # it may be due for another configuration, which is not the roll's failure
        (
            lambda c: c.connector("mirror", config_offset=44, pending_fencing=True),
            {"fencing record": INCONCLUSIVE},
            "mirror",
        ),
        (lambda c: c.connector("sink", fencing=None, pending_fencing=True), {}, "present"),  # none is due for a sink
        # nor for tasks on preparing workers only
        (lambda c: only_on_preparing(c, ("file", 0)).connector("file", fencing=None), {}, "present for mirror"),
        # nor for a paused task: it has not started, so nobody has fenced for it
        (
            lambda c: c.connector("file", fencing=None, target_state="PAUSED").task("file", 0, state="PAUSED"),
            {},
            "present for mirror",
        ),
        # but for one of many on an enabled worker
        (
            lambda c: only_on_preparing(c, ("mirror", 0), ("mirror", 1)).connector("mirror", pending_fencing=True),
            {},
            "present for file",
        ),
        (
            lambda c: only_on_preparing(c, ("mirror", 0)).connector("mirror", pending_fencing=True),
            {"fencing record": FAIL},
            "mirror",
        ),
        (
            lambda c: c.see(statuses=None, statuses_problem="no REST"),
            {"states": INCONCLUSIVE, "fencing record": INCONCLUSIVE},
            "no REST",
        ),
        (
            lambda c: c.see(config=None, config_problem="held back"),
            dict.fromkeys(("config offset", "placement", "fencing record"), INCONCLUSIVE),
            "held back",
        ),
    ],
)
def test_a_fencing_record_is_due_for_what_runs_exactly_once(
    change: Break, verdicts: dict[str, Verdict], found: str
) -> None:
    gate = Gate(target=ENABLED, current=PREPARING)
    change(gate.cluster)
    assert gate.not_passed() == verdicts
    assert found in gate.answers()["fencing record"].found


# what the group writes


def test_a_transaction_within_its_timeout_is_fine(gate: Gate) -> None:
    gate.cluster.log(open_transactions=(OPEN,), held=(Held("out", 0, 7, NOW - 60),))
    assert gate.not_passed() == {}
    assert gate.answers()["transactions"].found == "1 open within their timeouts on 9 partitions"


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort", "PrepareEpochFence", "of a newer broker"])
def test_a_transaction_whose_end_is_decided_and_does_not_come_is_overdue_like_any(gate: Gate, state: str) -> None:
    transaction = started(76)._replace(state=TransactionState(state))
    gate.cluster.log(open_transactions=(transaction,), held=(Held("out", 0, 7, NOW - 76),))
    assert gate.not_passed() == {"transactions": INCONCLUSIVE}
    check = gate.answers()["transactions"]
    assert f"the transaction of lab-mirror-0 is open ({state}) 16 s past its timeout" in check.found
    assert "does not take its marker" in check.remedy


# what is remembered from look to look

OUT = {"mirror": frozenset({"out"})}


def ends(stable: int, end: int, other: int = 5) -> dict[tuple[str, int], Ends]:
    return {("out", 0): Ends(stable, end), ("other", 0): Ends(other, other)}


def test_a_held_partition_is_dated_from_the_first_look_at_that_offset() -> None:
    memory = Memory()
    for at, found in ((1.0, ends(7, 9)), (2.0, ends(7, 12)), (3.0, ends(12, 13)), (4.0, ends(12, 13))):
        memory.take(at, found, OUT)
    assert memory.held == (Held("out", 0, 12, 3.0),)
    memory.take(5.0, ends(13, 13), OUT)
    assert memory.held == ()


def test_a_source_is_steady_after_three_growing_looks_in_a_row_at_its_own_topics() -> None:
    memory = Memory()
    seen = []
    for at, end in enumerate((10, 11, 12, 12, 13, 14, 15, 15), start=1):
        memory.take(float(at), ends(end, end, other=at), OUT)
        seen.append(memory.movements["mirror"])
    assert [movement.looks for movement in seen] == [0, 1, 2, 0, 1, 2, 3, 0]
    assert [movement.steady_at for movement in seen] == [None] * 6 + [7.0, 7.0]
    assert [movement.moved_since for movement in seen] == [0.0, 1.0, 2.0, 2.0, 4.0, 5.0, 6.0, 6.0]


# A worker that ends in mid-roll and not by the roll: it is named at once, with how it is started


def ended(gate: Gate) -> set[str]:
    return set(ended_elsewhere(gate.expected(), gate.cluster.observe()))


def test_another_worker_that_has_ended_is_named_with_its_start_command(gate: Gate) -> None:
    gate.cluster.kill(W3)
    check = gate.answers()["REST"]
    assert not check.decisive, "it may be started, and the gate go on"
    assert f"start {W3}: connect /etc/connect/w3.properties" in check.remedy
    assert ended(gate) == {W3}


def test_who_has_not_ended_elsewhere(gate: Gate) -> None:
    """The worker whose gate it is, one that was stopped before, and one whose process is not known."""
    gate.cluster.facts(W3, is_running=False, running=NOT_REACHED)
    assert ended(gate) == set()
    expected = gate.expected()
    gate.cluster.kill(W2).kill(W3)
    without = replace(expected, members=expected.members - {W3})
    assert ended_elsewhere(without, gate.cluster.observe()) == {}


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


def test_it_is_said_once_when_a_worker_has_ended_and_once_when_it_is_back(cluster: Cluster) -> None:
    down = {W3: cluster.kill(W3).observe().worker(W3)}
    assert list(reported_changes((), {})) == list(reported_changes({W3}, down)) == []
    (line,) = reported_changes((), down)
    assert line.startswith(f"{W3} has ended, and not by this roll. The roll waits for it: start {W3}: connect ")
    assert list(reported_changes({W3}, {})) == [f"{W3} runs again; the roll continues when it is a healthy member."]
