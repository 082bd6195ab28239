"""What `eos status` does not let an operator miss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.mode_evidence import Declared, ModeVerdict, Observed, Running, judge
from airflow_eos_provider.connect.topics.config_topic import TaskSet
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription
from airflow_eos_provider.rollout.drift.contradictions import findings
from airflow_eos_provider.rollout.hosts.choose import host_of
from airflow_eos_provider.rollout.hosts.host import Obstacle
from airflow_eos_provider.rollout.observe.reported_states import unsettled
from airflow_eos_provider.rollout.observe.topic_progress import LogView
from tests.unit.rollout.conftest import FOREIGN, NOW, W1, W2, W3, other_group

SUSPENDED = Obstacle("answer", "its process 7 is suspended (SIGSTOP)", "continue it: kill -CONT 7")


def found_in(cluster: Any) -> list[str]:
    return [finding.found for finding in findings(cluster.observe())]


@pytest.mark.parametrize("mode", list(Mode))
def test_of_a_healthy_cluster_there_is_nothing_to_tell(cluster_in: Any, mode: Mode) -> None:
    assert found_in(cluster_in(mode)) == []


def transaction(state: str, age_seconds: float, timeout_seconds: float = 60.0) -> TransactionDescription:
    started = None if state == "Empty" else int((NOW - age_seconds) * 1000)
    return TransactionDescription(
        "lab-mirror-0", TransactionState(state), 1, 0, int(timeout_seconds * 1000), started, ()
    )


def taskless(cluster: Any, *, seconds: float = 300.0, **config: Any) -> Any:
    """A connector that runs and has no task since its last change."""
    return cluster.status("file", tasks=()).connector("file", changed_at_ms=int((NOW - seconds) * 1000), **config)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (lambda c: c.join("w9:8083"), "w9:8083 is a member of the group, but not in the cluster file"),
        (lambda c: c.stop(W2), "w2:8083 is stopped; by its configuration it would join as disabled"),
        (lambda c: c.leave(W2), "w2:8083 runs, but is not a member of group lab"),
        (lambda c: c.facts(W2, problem="it has no 'start'"), "w2:8083: it has no 'start'"),
        (lambda c: c.worker(W2, rest_problem="refused"), "w2:8083: refused"),
        (
            lambda c: c.kill(W2),
            "w2:8083 is dead: no process of it runs, though the group still counts it as a member; last "
            "reported before it stopped answering: task mirror-1 RUNNING, connector sink RUNNING, task sink-0 RUNNING",
        ),
        (
            lambda c: c.silent(W3),
            "w3:8083: no answer; last reported before it stopped answering: connector mirror RUNNING, "
            "task mirror-2 RUNNING",
        ),
        (
            lambda c: c.facts(W3, obstacles=(SUSPENDED,)).silent(W3),
            "w3:8083: its process 7 is suspended (SIGSTOP), no answer; last reported",
        ),
        (
            lambda c: c.join("127.0.0.1:8083").leave(W2).see(aliases={"127.0.0.1:8083": W2}),
            "127.0.0.1:8083, a member of the group, and w2:8083 of the cluster file are the same port under two names",
        ),
        (
            lambda c: c.facts(W2, declared=replace(c.workers[W2].facts.declared, modified_at=NOW - 60.0)),
            "the file /etc/connect/w2.properties of w2:8083 was changed after the worker's start",
        ),
        (
            lambda c: c.facts(W2, declared=replace(c.workers[W2].facts.declared, changed_at=NOW - 60.0)),
            "the file /etc/connect/w2.properties of w2:8083 is dated before the worker's start, but was replaced",
        ),
        (
            lambda c: c.says("config.storage.topic", "x", W2),
            "the workers differ in config.storage.topic: w1:8083: connect-configs, w2:8083: x",
        ),
        (
            lambda c: c.says("group.id", "typo", W2),
            "the workers' files name another group than lab: w2:8083: typo",
        ),
        (
            lambda c: c.says("config.storage.topic", "${file:a:b}", W2),
            "a config provider supplies config.storage.topic (${file:a:b} in the configuration of w2:8083)",
        ),
        (lambda c: c.see(took_seconds=12.0), "this observation took 12 s: its parts are from different moments"),
        (
            lambda c: c.status("file", worker_id=FOREIGN).task("file", 0, worker_id=FOREIGN),
            "w9:8083 reports, but is no member of the group: connector file RUNNING, task file-0 RUNNING",
        ),
        (
            lambda c: c.see(neighbours=(other_group(),)).task("file", 0, worker_id=FOREIGN),
            "two Connect groups use the same internal topics: w9:8083, a member of group other, reports task file-0",
        ),
        (
            lambda c: c.see(neighbours=(other_group("file"),)),
            "group other runs connectors of the same names at the same config offset: file",
        ),
        (
            lambda c: c.status("file", state="UNASSIGNED"),
            "connector file is UNASSIGNED, though the group has placed it on w1:8083",
        ),
        (
            lambda c: c.task("mirror", 1, worker_id=W1),
            "task mirror-1 is placed on w2:8083, but reported RUNNING by w1:8083",
        ),
        (
            lambda c: c.place(("mirror", 1)).task("mirror", 1, state="UNASSIGNED"),
            "task mirror-1 is UNASSIGNED and placed on no worker, and no rebalance delay runs",
        ),
        (lambda c: c.prove(W2, ModeVerdict.UNKNOWN, "no log"), "the mode of w2:8083 is unknown: no log"),
        (lambda c: c.rebalancing(), "the group is in state PreparingRebalance"),
        (lambda c: c.assign(W2, delay_ms=293_987), "a rebalance delay runs (294 s at the last rebalance)"),
        (lambda c: c.task("mirror", 1, state="FAILED"), "connector mirror has FAILED task 1: unknown (no trace)"),
        (lambda c: c.status("sink", state="FAILED"), "connector sink has FAILED"),
        (lambda c: setattr(c, "group_problem", "no broker answers"), "no broker answers"),  # and nobody is missing
        (lambda c: c.see(config=None, config_problem="held back"), "held back"),
        (lambda c: c.see(statuses=None, statuses_problem="no REST"), "no REST"),
        (lambda c: c.see(logs=None, logs_problem="no leader"), "no leader"),
        (lambda c: c.see(logs=LogView(unreadable=frozenset({"orders"}))), "open transactions in orders cannot be read"),
        (
            lambda c: c.connector("file", inconsistent=True),
            "the task configurations of connector file in the config topic are incomplete",
        ),
        (
            lambda c: taskless(c, commit_offset=5, config_offset=10),
            "connector file is RUNNING and has no task: Connect has got no task configurations from it since it was "
            "last changed, 5.0 min ago",
        ),
        (
            lambda c: taskless(c, task_set=TaskSet(0, 20, {})),
            "connector file is RUNNING and has no task: it has requested none since",
        ),
        (lambda c: taskless(c), "connector file is RUNNING and has no task: 1 task should have started since"),
        (
            lambda c: c.connector("file", changed_at_ms=int((NOW - 300) * 1000)).statuses.pop("file"),
            "connector file has reported no state since it was last changed, 5.0 min ago",
        ),
        (lambda c: c.see(transactions=None, transactions_problem="not authorised"), "not authorised"),
        (
            lambda c: c.see(transactions=(transaction("Ongoing", 90.0),)),
            "the transaction of lab-mirror-0 is open for 90 s, over its timeout of 60 s",
        ),
    ],
)
def test_one_thing_that_is_not_as_it_should_be_is_told_once(cluster: Any, broken: Any, words: str) -> None:
    broken(cluster)
    found = found_in(cluster)
    assert len(found) == 1
    assert found[0].startswith(words)


@pytest.mark.parametrize(
    "fine",
    [
        lambda c: c.see(transactions=(transaction("Ongoing", 30.0),)),
        lambda c: c.see(transactions=(transaction("Ongoing", 60.0),)),
        lambda c: c.see(transactions=(transaction("Empty", 90.0),)),
        lambda c: c.see(transactions=(transaction("CompleteCommit", 90.0),)),
        lambda c: c.see(transactions=(transaction("Ongoing", 90.0)._replace(started_at_ms=None),)),  # begins now
        lambda c: c.see(neighbours=(other_group("file", config_offset=41),)),  # the same names by chance
        lambda c: c.connector("file", target_state="PAUSED").status("file", state="UNASSIGNED"),
        # no task for a moment, or while it shall not run
        lambda c: taskless(c, seconds=60.0),
        lambda c: taskless(c, target_state="STOPPED").status("file", state="STOPPED"),
        lambda c: taskless(c, target_state="PAUSED").status("file", state="PAUSED"),
    ],
)
def test_what_is_in_order_is_not_told(cluster: Any, fine: Any) -> None:
    assert found_in(fine(cluster)) == []


@pytest.mark.parametrize(
    ("mode", "change", "told"),
    [
        (
            Mode.DISABLED,
            lambda c: c.roll(W2, Mode.PREPARING, at=NOW - 60.0),
            "the workers run in different modes: disabled, preparing",
        ),
        (
            Mode.PREPARING,
            lambda c: c.roll(W2, Mode.ENABLED, at=NOW - 60.0).says("isolation.level", "read_committed", W1, W3),
            "the workers run in different modes: enabled, preparing",
        ),
        (
            Mode.PREPARING,  # by hand
            lambda c: c.says("isolation.level", "read_uncommitted", W2),
            "w2:8083 would read source offsets uncommitted as soon as one worker is enabled",
        ),
        (
            Mode.ENABLED,
            lambda c: c.edit_file(W3, Mode.DISABLED).stop(W3),
            "w3:8083 is stopped; by its configuration it would join as disabled",
        ),
        (
            Mode.DISABLED,
            lambda c: c.worker(W2, mode=replace(c.workers[W2].mode, disagreements=("the file says enabled",))),
            "w2:8083: the file says enabled",
        ),
    ],
)
def test_what_the_modes_give_rise_to_is_told_once(cluster_in: Any, mode: Mode, change: Any, told: str) -> None:
    assert found_in(change(cluster_in(mode))) == [told]


def test_disabled_beside_enabled_is_told_for_what_it_is(cluster: Any) -> None:
    modes, reading = found_in(cluster.roll(W2, Mode.ENABLED, at=NOW - 60.0))
    assert "there is no exactly-once" in modes
    assert reading.startswith("some workers are enabled, but w1:8083, w3:8083 would read source offsets uncommitted")


@pytest.mark.parametrize(
    ("mode", "enabled", "due"),
    [(Mode.PREPARING, (), False), (Mode.ENABLED, (), True), (Mode.PREPARING, (W2,), True)],
)
def test_a_pending_fencing_round_is_told_once_a_worker_is_enabled(
    cluster_in: Any, mode: Mode, enabled: tuple[str, ...], due: bool
) -> None:
    cluster = cluster_in(mode).connector("mirror", pending_fencing=True).connector("sink", pending_fencing=True)
    for worker_id in enabled:
        cluster.roll(worker_id, Mode.ENABLED, at=NOW - 60.0)
    assert [each for each in found_in(cluster) if "fencing" in each] == ["a fencing round for mirror is pending"] * due


def remedies(cluster: Any) -> list[str]:
    return [finding.remedy for finding in findings(cluster.observe())]


def test_a_dead_member_is_started_or_waited_for(cluster: Any) -> None:
    (remedy,) = remedies(cluster.kill(W2))
    assert "start it; or wait: after its session timeout (10 s)" in remedy
    assert "up to 300 s" in remedy


def test_what_a_dead_member_left_unassigned_in_a_delay_is_the_delays_matter(cluster: Any) -> None:
    """Its task is placed on nobody, and its last word is still RUNNING."""
    cluster.stop(W2).place(("mirror", 1)).task("mirror", 1, worker_id=W2).assign(W1, delay_ms=300_000)
    assert found_in(cluster) == [
        "w2:8083 is stopped; by its configuration it would join as disabled; last reported before it stopped "
        "answering: task mirror-1 RUNNING",
        "a rebalance delay runs (300 s at the last rebalance): tasks of a lost worker are unassigned until it ends",
    ]


def test_reports_of_a_foreign_group_end_with_the_request_that_mends_them(cluster: Any) -> None:
    cluster.see(neighbours=(other_group(),)).status("file", worker_id=FOREIGN)
    (remedy,) = remedies(cluster)
    assert remedy.startswith("stop the workers of other, or give them config, offset and status topics of their own")
    assert "curl -X POST 'http://w1:8083/connectors/file/restart?includeTasks=true&onlyFailed=false'" in remedy


def test_a_worker_that_starts_is_told_as_such(cluster: Any) -> None:
    cluster.roll(W2, Mode.DISABLED, at=NOW - 5.0).silent(W2, "404")
    assert found_in(cluster)[0].startswith("w2:8083 is starting: 404")


@pytest.mark.parametrize(
    ("broken", "is_unsettled"),
    [
        (lambda c: c, False),
        (lambda c: c.task("mirror", 1, worker_id=W1), True),
        (lambda c: c.status("file", state="UNASSIGNED"), True),
        (lambda c: c.status("file", worker_id=FOREIGN), True),
        (lambda c: c.see(neighbours=(other_group(),)).status("file", worker_id=FOREIGN), False),
        (lambda c: c.see(took_seconds=12.0), True),
        (lambda c: c.see(took_seconds=12.0).kill(W2), False),
        (lambda c: c.see(config=None, config_problem="not authorized"), False),
        (lambda c: c.rebalancing(), False),
    ],
)
def test_a_look_is_repeated_if_a_moment_may_settle_it(cluster: Any, broken: Any, is_unsettled: bool) -> None:
    broken(cluster)
    assert unsettled(cluster.observe()) is is_unsettled


@pytest.mark.parametrize(
    ("worker", "words"),
    [
        ({"facts": {"mode_remedy": "name its log in the cluster file"}}, "name its log in the cluster file"),
        ({"root": None}, "it has to answer at http://w2:8083"),
        ({}, "compare what the evidence says"),
    ],
)
def test_the_remedy_for_an_unknown_mode_is_what_would_prove_it(cluster: Any, worker: Any, words: str) -> None:
    cluster.prove(W2, ModeVerdict.UNKNOWN, "no log").facts(W2, **worker.pop("facts", {})).worker(W2, **worker)
    found = [f.remedy for f in findings(cluster.observe()) if "is unknown" in f.found]
    assert len(found) == 1
    assert found[0].startswith(words)


def test_a_worker_that_refuses_the_look_says_what_would_let_it_in(cluster: Any) -> None:
    cluster.silent(W2, "401", "Check rest.password.")

    (finding,) = [finding for finding in findings(cluster.observe()) if "w2:8083: 401" in finding.found]
    assert finding.remedy == "Check rest.password; read its log /var/log/w2:8083.log"


def by_url_only(cluster: Any, *worker_ids: str) -> None:
    """As 'eos discover' proposes workers of other machines."""
    for worker_id in worker_ids:
        described = WorkerDescription(f"http://{worker_id}")
        facts = host_of(described).observe()
        observed = Observed(True, "as probed")
        cluster.worker(
            worker_id,
            worker=described,
            facts=facts,
            mode=judge(worker_id, facts.declared, facts.running, observed),
        )


def test_workers_of_other_machines_are_one_finding_that_says_what_is_lacking(cluster: Any) -> None:
    by_url_only(cluster, W1, W2, W3)
    cluster.see(config=None, config_topic=None, config_problem="The config topic cannot be determined.")

    (finding,) = findings(cluster.observe())

    assert finding.found == (
        "the cluster file has only the URL of w1:8083, w2:8083, w3:8083, so these are unknown: configuration, process, "
        "log and mode, and with them the config topic, pending fencing and the rebalance delay"
    )
    assert "'eos discover' finds a worker's host" in finding.remedy


def test_a_worker_of_a_managed_service_is_watched_and_what_is_possible_there_is_said(cluster: Any) -> None:
    described = WorkerDescription("https://kc-shop.a.aivencloud.com:443")
    facts = host_of(described).observe()
    cluster.worker(W2, worker=described, facts=facts)

    found = [finding for finding in findings(cluster.observe()) if "Aiven" in (finding.remedy or "")]

    assert [finding.remedy for finding in found] == [
        "kc-shop.a.aivencloud.com:443 of Aiven for Apache Kafka Connect can be watched, not rolled: sinks can read "
        "committed records only (consumer_isolation_level=read_committed in the service's user configuration); for "
        "exactly-once sources, run your own Kafka Connect with its brokers"
    ]


@pytest.mark.parametrize("kind", ["by its URL alone", "with a process that is not found"])
def test_a_worker_that_answers_at_an_address_of_no_member_is_not_called_stopped(cluster: Any, kind: str) -> None:
    """Behind a proxy's path, or under another host name: the answer outweighs the address."""
    if kind == "by its URL alone":
        by_url_only(cluster, W2)
    else:
        judged = judge(W2, *_ended(cluster, W2), Observed(None, "REST answers", has_answered=True))
        cluster.worker(
            W2, mode=judged, facts=replace(cluster.workers[W2].facts, is_running=False, running=judged.running)
        )
        assert "stopped" not in judged.reason
        assert "no process of this worker runs (not there), but its address answers" in judged.reason
    seen = cluster.leave(W2).join("inner:8083").observe()

    (member,) = [finding for finding in findings(seen) if finding.found.startswith("inner:8083")]
    (answers,) = [finding for finding in findings(seen) if finding.found.startswith("w2:8083 answers")]

    assert seen.stopped == ()
    assert answers.found.endswith("no member of group lab has that address")
    assert "http://inner:8083" in answers.remedy
    assert "if it is w2:8083 by another address, correct its url" in member.remedy
    assert not [finding for finding in findings(seen) if "is stopped" in finding.found]


def _ended(cluster: Any, worker_id: str) -> tuple[Declared, Running]:
    declared = cluster.workers[worker_id].facts.declared
    return declared, Running(None, "not there", None, alive=False)


@pytest.mark.parametrize("hidden", ["unreachable", "rebalancing"])
def test_where_the_members_are_not_known_nobody_is_called_stopped_without_proof(cluster: Any, hidden: str) -> None:
    by_url_only(cluster, W1, W2)
    for worker_id in (W1, W2, W3):
        cluster.silent(worker_id)
    cluster.facts(W3, is_running=False, running=Running(None, "unit is inactive", None, alive=False))
    if hidden == "unreachable":
        cluster.group_problem = "no broker answers"
    else:
        cluster.rebalancing()
    assert [worker.worker_id for worker in cluster.observe().stopped] == [W3]


def test_a_worker_of_another_machine_that_is_missing_is_not_called_stopped(cluster: Any) -> None:
    by_url_only(cluster, W2)
    cluster.leave(W2).silent(W2, remedy="Check the address.")

    (finding,) = [finding for finding in findings(cluster.observe()) if finding.found.startswith(W2)]

    assert finding.found == "w2:8083 is not a member of group lab, and does not answer: no answer"
    assert finding.remedy == "Check the address"
