"""The plan: what its hash rests on, what a person is shown, and how it is refused when the cluster has moved."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.mode_evidence import ModeVerdict
from airflow_eos_provider.connect.rest import WorkerRoot
from airflow_eos_provider.errors import ConfigurationError, PlanMovedError
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.preflight.findings import ConnectorFinding, Severity
from airflow_eos_provider.preflight.preflight_report import Report
from airflow_eos_provider.rollout.hosts.host import Edit
from airflow_eos_provider.rollout.hosts.launch import launch_of
from airflow_eos_provider.rollout.plan.obstacles import stops_no_task
from airflow_eos_provider.rollout.plan.roll_plan import (
    CHANGED_LINES,
    SHOWN_FINDINGS,
    ChangeKind,
    ConnectorNotes,
    Plan,
    make_plan,
    next_target,
)
from tests.unit.rollout.conftest import DISABLED, ENABLED, PREPARING, W1, W2, W3, Cluster


def drop_worker(cluster: Any) -> None:
    cluster.leave(W3)
    del cluster.workers[W3]


@pytest.mark.parametrize(
    ("move", "words"),
    [
        (lambda c: c.facts(W2, digest="edited"), "the configuration of w2:8083 was edited (/etc"),
        (
            lambda c: c.facts(W2, edit=Edit("/elsewhere/w2.properties")),
            "config of w2:8083: /etc/connect/w2.properties, now /elsewhere/w2.properties",
        ),
        (lambda c: c.prove(W2, ModeVerdict.PREPARING), "mode of w2:8083: disabled, now preparing"),
        (lambda c: c.prove(W2, ModeVerdict.UNKNOWN), "mode of w2:8083: disabled, now unknown"),
        (lambda c: c.stop(W2), "mode of w2:8083: disabled, now stopped"),
        (
            lambda c: c.worker(W2, root=WorkerRoot("4.3.2", "abc", "kafka-1")),
            "version of w2:8083: 4.3.1, now 4.3.2",
        ),
        (drop_worker, "w3:8083 is gone from the roster"),
        (
            lambda c: [c.worker(w, root=WorkerRoot("4.3.1", "abc", "kafka-2")) for w in (W1, W2, W3)],
            "another cluster: lab on kafka-1, now lab on kafka-2",
        ),
    ],
)
def test_what_the_plan_rests_on_moves_its_hash_and_is_named(cluster: Any, move: Any, words: str) -> None:
    plan = cluster.plan()
    move(cluster)
    now = cluster.plan()
    assert now.hash != plan.hash
    with pytest.raises(PlanMovedError) as refused:
        plan.require_unmoved(now)
    assert refused.value.found.splitlines()[1].startswith(f"  - {words}")
    assert plan.short_hash in refused.value.found
    assert refused.value.remedy
    assert refused.value.exit_code == 3, "nothing was changed"


def test_a_new_worker_in_the_roster_moves_the_plan(cluster: Any) -> None:
    bigger = cluster.plan()
    drop_worker(cluster)
    with pytest.raises(PlanMovedError, match="w3:8083 is new in the roster"):
        cluster.plan().require_unmoved(bigger)


def test_everything_that_has_moved_is_named_at_once(cluster: Any) -> None:
    plan = cluster.plan()
    cluster.facts(W1, digest="edited").prove(W3, ModeVerdict.PREPARING)
    with pytest.raises(PlanMovedError) as refused:
        plan.require_unmoved(cluster.plan())
    assert "the configuration of w1:8083 was edited" in refused.value.found
    assert "mode of w3:8083: disabled, now preparing" in refused.value.found
    assert "w2:8083" not in refused.value.found


def test_another_target_is_another_plan(cluster_in: Any) -> None:
    cluster = cluster_in(PREPARING)
    assert cluster.plan(ENABLED).hash != cluster.plan(DISABLED).hash


def test_the_digest_that_the_file_will_have_belongs_to_the_plan(cluster: Any) -> None:
    digests = {w: f"{w} after" for w in (W1, W2, W3)}
    other = make_plan(cluster.observe(), PREPARING, {**digests, W2: "another edit"})
    assert make_plan(cluster.observe(), PREPARING, digests).hash != other.hash


@pytest.mark.parametrize(
    "move",
    [
        lambda c: setattr(c, "leader", W3),
        lambda c: c.place(("mirror", 0), W2),
        lambda c: c.add_connector("new"),
        lambda c: c.task("mirror", 0, state="FAILED"),
        lambda c: c.start(W2, at=999_000.0),  # in the same mode
        lambda c: c.facts(W2, declared=replace(c.workers[W2].facts.declared, modified_at=1.0)),  # a touched file
        lambda c: c.assign(W1, delay_ms=5),
        lambda c: c.rebalancing(),
        lambda c: setattr(c, "workers", dict(reversed(c.workers.items()))),  # in another order
    ],
)
def test_what_moves_by_itself_does_not_move_the_plan(cluster: Any, move: Any) -> None:
    plan = cluster.plan()
    move(cluster)
    assert cluster.plan().hash == plan.hash
    plan.require_unmoved(cluster.plan())


# what is done to each worker


@pytest.mark.parametrize(
    ("mode", "change", "kind"),
    [
        (DISABLED, lambda c: c, ChangeKind.ROLL),
        (DISABLED, lambda c: c.stop(W2), ChangeKind.FILE_ONLY),
        (DISABLED, lambda c: c.stop(W2).edit_file(W2, PREPARING), ChangeKind.NONE),
        (PREPARING, lambda c: c, ChangeKind.NONE),
        (DISABLED, lambda c: c.edit_file(W2, PREPARING), ChangeKind.ROLL),  # the file is newer than the process
        (PREPARING, lambda c: c.edit_file(W2, DISABLED), ChangeKind.ROLL),  # the next start would take it back
    ],
)
def test_what_is_done_to_a_worker_follows_from_its_mode_and_its_file(
    cluster_in: Any, mode: Mode, change: Any, kind: ChangeKind
) -> None:
    plan = change(cluster_in(mode)).plan(PREPARING)
    assert plan.change(W2).kind is kind
    others = {plan.change(W1).kind, plan.change(W3).kind}
    assert plan.nothing_to_do is (others == {ChangeKind.NONE} and kind is ChangeKind.NONE)


def test_only_the_running_workers_modes_are_where_a_roll_starts_from(cluster: Any) -> None:
    assert cluster.stop(W2).plan().current == "disabled"
    assert cluster.roll(W1, PREPARING, at=1.0).plan().current == "disabled, preparing"
    assert cluster.stop(W1).stop(W3).plan().current == "stopped"


@pytest.mark.parametrize(
    ("mode", "change", "target"),
    [
        (DISABLED, lambda c: c, PREPARING),
        (PREPARING, lambda c: c, ENABLED),
        (ENABLED, lambda c: c, ENABLED),
        (PREPARING, lambda c: c.roll(W3, DISABLED, at=1.0), PREPARING),
        (PREPARING, lambda c: c.edit_file(W3, DISABLED).stop(W3), ENABLED),  # a stopped worker keeps no other back
        (PREPARING, lambda c: c.prove(W3, ModeVerdict.UNKNOWN), PREPARING),  # not proven is not prepared
    ],
)
def test_an_upgrade_goes_step_by_step(cluster_in: Any, mode: Mode, change: Any, target: Mode) -> None:
    assert next_target(change(cluster_in(mode)).observe()) is target


def test_an_upgrade_prepares_anew_what_was_prepared_by_hand(cluster_in: Any) -> None:
    cluster = cluster_in(PREPARING).says("isolation.level", "read_uncommitted", W3).facts(W3, digest="by hand")
    assert next_target(cluster.observe()) is PREPARING
    assert [change.kind.name for change in cluster.plan(PREPARING).workers] == ["NONE", "NONE", "ROLL"]


# from hand to hand


def test_a_plan_is_read_from_what_is_written_down_or_printed_by_the_command(cluster: Any) -> None:
    plan = cluster.stop(W3).plan()
    again = Plan.from_dict({**json.loads(json.dumps(plan.to_dict())), "nothing_to_do": False})
    assert again == plan
    assert again.hash == plan.hash
    assert again.change(W3).kind is ChangeKind.FILE_ONLY


def rewrite(*path: Any) -> Any:
    """Writes ``"enabled"`` to the place that the path names, whatever stands there."""

    def write(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = "enabled"

    return write


@pytest.mark.parametrize(
    "tamper",
    [
        rewrite("target"),
        rewrite("group_id"),
        rewrite("kafka_cluster_id"),
        rewrite("workers", 0, "worker_id"),
        rewrite("workers", 1, "mode"),
        rewrite("workers", 1, "config"),
        rewrite("workers", 1, "config_before"),
        rewrite("workers", 1, "config_after"),
        rewrite("workers", 1, "version"),
        rewrite("workers", 1, "declared"),
        rewrite("hash"),
        lambda d: d["workers"].pop(),
        lambda d: d["workers"][0].update(kind="NONE"),
        lambda d: d["workers"][0].update(kind="EXPLODE"),
        lambda d: d["workers"][0].update(extra=1),
        lambda d: d["workers"][0].pop("mode"),
        lambda d: d.update(target="sideways"),
        lambda d: d.update(schema=99),
        lambda d: d.pop("workers"),
        lambda d: d.pop("hash"),
        lambda d: d.update(workers=None),
        lambda d: d.update(task_downtime=[{"worker_id": W1}]),
    ],
)
def test_a_tampered_plan_is_refused(cluster: Any, tamper: Any) -> None:
    document = json.loads(json.dumps(cluster.plan().to_dict()))
    tamper(document)
    with pytest.raises(ConfigurationError):
        Plan.from_dict(document)


# what a person is shown


def test_the_approval_shows_from_where_to_where_and_how_long_tasks_stand(cluster: Any, cluster_in: Any) -> None:
    text = cluster.plan().markdown()
    assert "**Roll group `lab` from `disabled` to preparing**" in text
    assert f"(plan `{cluster.plan().short_hash}`)" in text
    assert "| `w1:8083` | `disabled` | 2 | change the file and restart | about 15 s: it leads the group" in text
    assert "| `w2:8083` | `disabled` | 2 | change the file and restart | about 15 s, at worst 30 s: " in text
    assert "-exactly.once.source.support=disabled\n+exactly.once.source.support=preparing" in text
    assert "  no configuration changes" in cluster_in(PREPARING).plan(PREPARING).markdown()


@pytest.mark.parametrize(
    ("change", "row"),
    [
        (lambda c: c.stop(W2), "`stopped` | 0 | change the file (stopped: it joins in the new mode) | about 0 s"),
        (lambda c: c.roll(W2, PREPARING, at=1.0), "`preparing` | 2 | nothing: already there | not at all |"),
    ],
)
def test_the_approval_says_what_happens_to_a_worker_that_is_not_restarted(cluster: Any, change: Any, row: str) -> None:
    assert f"| `w2:8083` | {row}" in change(cluster).plan().markdown()


def test_the_diff_shows_the_changed_lines_and_no_other_line_of_the_file(cluster_in: Any) -> None:
    plan = cluster_in(PREPARING).says("exactly.once.source.support", None, W2).plan(ENABLED)
    assert plan.diff() == [
        "--- /etc/connect/w1.properties  (w1:8083)",
        "-exactly.once.source.support=preparing",
        "+exactly.once.source.support=enabled",
        "--- /etc/connect/w2.properties  (w2:8083)",
        "+exactly.once.source.support=enabled",
        "--- /etc/connect/w3.properties  (w3:8083)",
        "-exactly.once.source.support=preparing",
        "+exactly.once.source.support=enabled",
    ]


@pytest.mark.parametrize("target", [PREPARING, DISABLED])
def test_a_worker_that_will_not_be_enabled_is_made_to_read_offsets_committed(cluster_in: Any, target: Mode) -> None:
    assert cluster_in(ENABLED).says("isolation.level", "read_uncommitted").plan(target).diff()[:5] == [
        "--- /etc/connect/w1.properties  (w1:8083)",
        "-exactly.once.source.support=enabled",
        f"+exactly.once.source.support={target}",
        "-isolation.level=read_uncommitted",
        "+isolation.level=read_committed",
    ]


def test_where_a_worker_reads_committed_already_or_will_be_enabled_that_line_stays(cluster_in: Any) -> None:
    reading = cluster_in(ENABLED).says("isolation.level", "read_committed").plan(PREPARING)
    for plan in (reading, cluster_in(PREPARING).plan(ENABLED)):
        assert not [line for line in plan.diff() if "isolation" in line]


def test_no_secret_of_a_file_reaches_the_plan(cluster: Any) -> None:
    plan = cluster.plan()
    assert "CANARY" in str(dict(cluster.workers[W2].facts.properties)), "the test would have nothing to find"
    for shown in (plan.markdown(), json.dumps(plan.to_dict()), repr(plan), repr(cluster.observe())):
        assert "CANARY" not in shown


# what is executed


def described(cluster: Any, **changes: Any) -> None:
    """The description of w2 says something else."""
    worker = replace(cluster.workers[W2].worker, **changes)
    cluster.worker(W2, worker=worker).facts(W2, launch=launch_of(worker))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"start": ("other", "w2.properties")}, "(start)"),
        ({"cwd": Path("/opt/other")}, "(cwd)"),
        ({"env": {"KAFKA_OPTS": "-Da=b"}}, "(env)"),
        ({"env": {"DB_PASSWORD": "another"}}, "(a value in start or env)"),
        ({"start": ("connect", "-Dssl.key.password=another")}, "(a value in start or env)"),
    ],
)
def test_what_is_executed_is_part_of_what_is_approved(cluster: Any, changes: dict[str, Any], words: str) -> None:
    described(cluster, env={"DB_PASSWORD": "canary"})
    if words == "(a value in start or env)":
        described(cluster, start=("connect", "-Dssl.key.password=canary"))
    plan = cluster.plan()
    described(cluster, **changes)
    now = cluster.plan()
    assert now.hash != plan.hash
    with pytest.raises(PlanMovedError, match="what starts w2:8083 was changed in the description") as refused:
        plan.require_unmoved(now)
    assert words in refused.value.found


def test_the_approval_shows_what_is_executed_and_no_secret(cluster: Any) -> None:
    start = ("connect", "-Dssl.key.password=canary-1", "--api-token", "canary-2", "--as=canary-3", "x" * 500)
    described(cluster, start=start, cwd=Path("/opt/kafka"), env={"DB_PASSWORD": "canary-3", "KAFKA_OPTS": "-Da=b"})
    plan = cluster.plan()
    shown = plan.markdown()
    assert "w2:8083: connect -Dssl.key.password=*** --api-token *** --as=***" in shown
    assert "in /opt/kafka, with DB_PASSWORD, KAFKA_OPTS set" in shown
    assert "x" * 100 not in shown
    assert "canary" not in shown + json.dumps(plan.to_dict()) + repr(plan)
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


# a worker that a roll left down


def left_down_plan(cluster: Any) -> Plan:
    digests = {w: f"{w} with {PREPARING}" for w in cluster.workers}
    return make_plan(cluster.observe(), PREPARING, digests, left_down={W2: "r1"})


def test_a_worker_that_a_roll_left_down_is_started_and_the_plan_says_which_roll(cluster: Any) -> None:
    plan = left_down_plan(cluster.stop(W2))
    assert plan.change(W2).kind is ChangeKind.START
    assert not plan.change(W2).stays_stopped
    assert "| `w2:8083` | `stopped by rollout r1` |" in plan.markdown()
    assert not left_down_plan(cluster.edit_file(W2, PREPARING)).nothing_to_do
    assert plan.hash != cluster.plan().hash


# the way back


@pytest.mark.parametrize(
    ("mode", "change", "target", "is_downgrade", "ends"),
    [
        (ENABLED, lambda c: c, DISABLED, True, True),
        (ENABLED, lambda c: c.roll(W2, DISABLED, at=1.0), DISABLED, True, True),
        (ENABLED, lambda c: c.roll(W2, DISABLED, at=1.0), PREPARING, False, False),
        (PREPARING, lambda c: c, DISABLED, True, False),
        (PREPARING, lambda c: c, ENABLED, False, False),
        (DISABLED, lambda c: c, DISABLED, False, False),
        (DISABLED, lambda c: c.edit_file(W3, ENABLED).stop(W3), DISABLED, True, False),
    ],
)
def test_a_plan_that_takes_some_down_and_none_up_is_a_downgrade_and_says_what_is_given_up(
    cluster_in: Any, mode: Mode, change: Any, target: Mode, is_downgrade: bool, ends: bool
) -> None:
    plan = change(cluster_in(mode)).plan(target)
    assert plan.is_downgrade is is_downgrade
    assert ("Exactly-once ends with the first worker" in plan.markdown()) is ends
    assert ("**Exactly-once ends**" in shown(plan)) is ends


# What a plan says about the connectors: outside its hash, bounded, kept with it, and shown as data


def finding(name: str, kind: str = "producer", severity: Severity = Severity.BLOCKS) -> ConnectorFinding:
    return ConnectorFinding(name, Verdict.FAIL, f"{name} has acks=1", "all", "take it out", kind, severity=severity)


def report(*findings: ConnectorFinding, running: frozenset[str] = frozenset({"a"})) -> Report:
    return Report("g", Mode.ENABLED, ("a", "b"), (), findings, running)


def test_the_notes_are_kept_with_the_plan_and_no_part_of_its_hash() -> None:
    plan = Cluster(Mode.PREPARING).plan(Mode.ENABLED)
    noted = replace(plan, connectors=ConnectorNotes.of(report(finding("a"))))
    assert noted.hash == plan.hash
    assert Plan.from_dict(noted.to_dict()) == noted


def test_the_notes_are_bounded_and_shown_as_data() -> None:
    many = [finding(f"c{number} | **bold** \x1b[31m") for number in range(100)]
    notes = ConnectorNotes.of(report(*many))
    assert len(notes.lines) == SHOWN_FINDINGS + 1
    assert notes.lines[-1] == "90 findings more"
    plan = replace(Cluster(Mode.PREPARING).plan(Mode.ENABLED), connectors=notes)
    assert "\x1b" not in plan.markdown()
    assert "- `c0 \\x7c **bold** \\x1b[31m: blocks: producer: " in plan.markdown()
    assert "2 source connectors in the mode enabled: 100 blocks." in "\n".join(plan.summary())


@pytest.mark.parametrize(
    ("one", "verdict"),
    [
        (finding("a"), Verdict.FAIL),
        (finding("b"), Verdict.PASS),  # no task of it runs
        (finding("a", "support"), Verdict.PASS),  # its tasks go on
        (finding("a", "interval", Severity.WARNS), Verdict.PASS),
    ],
)
def test_only_what_stops_running_tasks_refuses_a_roll(one: ConnectorFinding, verdict: Verdict) -> None:
    check = stops_no_task(report(one))
    assert check.verdict is verdict
    assert ("take it out" in check.remedy) is (verdict is Verdict.FAIL)


# The few lines that are approved


def shown(plan: Plan) -> str:
    return "\n".join(plan.summary())


def test_an_upgrade_says_how_many_workers_how_long_and_which_lines(cluster: Any) -> None:
    text = shown(cluster.plan())
    assert "3 of 3 workers, one at a time" in text
    assert "its tasks are unassigned for about" in text
    assert "+exactly.once.source.support=preparing" in text
    assert "several workers" not in text


@pytest.mark.parametrize(("worst", "said"), [(15.3, "for about 15 s."), (45.0, "for about 15 s, at worst 45 s.")])
def test_a_predicted_downtime_whose_bounds_read_alike_is_said_once(cluster: Any, worst: float, said: str) -> None:
    plan = cluster.plan()
    predicted = tuple(replace(each, best_seconds=15.0, worst_seconds=worst) for each in plan.task_downtime)
    assert f"its tasks are unassigned {said}" in shown(replace(plan, task_downtime=predicted))


def test_a_shared_file_is_named_as_such(cluster: Any) -> None:
    plan = cluster.plan()
    shared = tuple(replace(change, config=plan.workers[0].config) for change in plan.workers)
    assert "One configuration serves several workers" in shown(replace(plan, workers=shared))


def test_more_changed_lines_than_there_is_room_for_are_counted(cluster: Any) -> None:
    plan = cluster.plan()
    differing = tuple(
        replace(change, worker_id=f"w{n}:8083", config=f"/etc/w{n}", declared=f"mode {n}")
        for n, change in enumerate(plan.workers * 3)
    )
    lines = replace(plan, workers=differing, task_downtime=()).summary()
    assert "more" in lines[-2]
    assert len(lines) <= CHANGED_LINES + 5


def test_what_starts_the_workers_is_named_and_is_data(cluster: Any) -> None:
    plan = cluster.plan()
    started = tuple(replace(change, start=("/opt/`evil`/start.sh", "-x")) for change in plan.workers)
    text = shown(replace(plan, workers=started))
    assert "The workers are started by" in text
    assert "/start.sh" in text
