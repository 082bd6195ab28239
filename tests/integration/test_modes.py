"""Mode evidence against real workers: all three modes, a file newer than its process, mixed, one stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pytest

from airflow_eos_provider import processes
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.group import describe_group
from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.mode_evidence import (
    LeaderEvidence,
    ModeVerdict,
    Observed,
    Running,
    WorkerMode,
    judge,
    leader_evidence,
    probe,
    with_leader_evidence,
)
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.rollout.hosts.choose import host_of
from airflow_eos_provider.rollout.hosts.host import Host, HostFacts
from tests.families import stop_family

START_SECONDS = 600.0


@dataclass
class Cluster:
    """A lab's workers, looked at with nothing but what this package offers."""

    cluster: ConnectCluster
    hosts: dict[str, Host]

    @classmethod
    def of(cls, cluster: ConnectCluster) -> Cluster:
        return cls(cluster, {worker.worker_id: host_of(worker) for worker in cluster.workers})

    def facts(self) -> dict[str, HostFacts]:
        return {worker_id: host.observe() for worker_id, host in self.hosts.items()}

    def leader(self) -> str | None:
        leader = describe_group(self.cluster.kafka, self.cluster.group_id).leader
        return leader.worker_id if leader else None

    def observed(self, worker_id: str) -> Observed:
        try:
            with ConnectRest(self.cluster.worker(worker_id).url, self.cluster.rest, retry_seconds=0.0) as rest:
                return probe(rest)
        except EosError as error:
            return Observed(None, error.found)

    def leader_evidence(self) -> LeaderEvidence:
        found: list[LeaderEvidence] = []

        def look() -> bool:
            found.extend(e for m in self.modes().values() if (e := m.observed.leader_evidence) is not None)
            return bool(found)

        self.wait_for("a group with a leader", look)
        return found[0]

    def let_the_leader_write(self) -> None:
        """A stopped connector's configuration goes into the config topic and does nothing else."""
        plugin = "org.apache.kafka.connect.file.FileStreamSourceConnector"
        config = {"connector.class": plugin, "file": "/dev/null", "topic": "none"}
        with ConnectRest(self.cluster.workers[0].url, self.cluster.rest) as rest:
            rest.create("let-the-leader-write", config, initial_state="STOPPED")
            rest.delete("let-the-leader-write")

    def id_exists(self) -> bool:
        with TransactionsClient(self.cluster.kafka) as client:
            return bool(client.describe([f"connect-cluster-{self.cluster.group_id}"]))

    def modes(self, change: Callable[[Running], Running] = lambda running: running) -> dict[str, WorkerMode]:
        """The verdict on every worker; ``change`` takes layers of evidence away."""
        facts = self.facts()
        leader = self.leader()
        newest = max((fact.running.started_at or 0.0) for fact in facts.values())
        topic = next(iter(facts.values())).properties["config.storage.topic"]
        verdicts = {}
        for worker_id, fact in facts.items():
            observed = self.observed(worker_id)
            if worker_id == leader:
                with TransactionsClient(self.cluster.kafka) as client:
                    evidence = leader_evidence(client, self.cluster.group_id, topic, newest)
                observed = with_leader_evidence(observed, evidence)
            verdicts[worker_id] = judge(worker_id, fact.declared, change(fact.running), observed)
        return verdicts

    def change(self, mode: Mode, *worker_ids: str) -> None:
        """Bring workers (all, if none is named) into a mode, all at once: no connector is there to mind it."""
        chosen = worker_ids or tuple(self.hosts)
        for worker_id in chosen:
            host = self.hosts[worker_id]
            host.edit({MODE_PROPERTY: mode}, expect=host.observe().digest or "")
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda worker_id: self.hosts[worker_id].restart(), chosen))
        for worker_id in chosen:
            self.wait_until_joined(worker_id)

    def stop(self, worker_id: str) -> None:
        pid_file = self.cluster.worker(worker_id).pid_file
        process = processes.from_pid_file(pid_file) if pid_file else None
        assert process is not None
        stop_family(process, grace_seconds=START_SECONDS)

    def wait_until_joined(self, worker_id: str) -> None:
        def joined() -> bool:
            group = describe_group(self.cluster.kafka, self.cluster.group_id)
            if not group.is_stable or worker_id not in {member.worker_id for member in group.members}:
                return False
            with ConnectRest(self.cluster.worker(worker_id).url, self.cluster.rest, retry_seconds=0.0) as rest:
                return rest.health().status == "healthy"

        self.wait_for(f"{worker_id} in its group", joined)

    @staticmethod
    def wait_for(what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                if condition():
                    return
            except EosError:
                pass
            assert time.monotonic() < deadline, f"no sign of {what} within {START_SECONDS} s"
            time.sleep(0.3)


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Any]) -> Any:
    return lab_factory(name="modes", workers=2, mode=Mode.DISABLED, rebalance_delay_ms=500, session_timeout_ms=6000)


@pytest.fixture
def cluster(lab: Any) -> Cluster:
    """Workers that run ``disabled``, whatever the test before has made of them."""
    cluster = Cluster.of(lab.cluster())
    modes = cluster.modes().items()
    others = [w for w, mode in modes if mode.verdict is not ModeVerdict.DISABLED or mode.disagreements]
    if others:
        cluster.change(Mode.DISABLED, *others)
    return cluster


def without_log(running: Running) -> Running:
    return replace(running, mode=None, detail="no log")


def verdicts(modes: dict[str, WorkerMode]) -> list[str]:
    return [str(mode.verdict) for mode in modes.values()]


def test_without_file_and_log_only_the_leader_tells_disabled_from_preparing(cluster: Cluster) -> None:
    leader = cluster.leader()
    nothing = Running(None, "another machine", None, None)
    for worker_id, mode in cluster.modes(lambda _running: nothing).items():
        known = worker_id == leader and not cluster.id_exists()
        assert mode.verdict is (ModeVerdict.DISABLED if known else ModeVerdict.UNKNOWN), mode.reason


def test_nothing_but_a_worker_of_the_group_is_asked_and_nothing_is_created(cluster: Cluster) -> None:
    worker = cluster.cluster.workers[0]
    with ConnectRest(worker.url, cluster.cluster.rest) as rest:
        before = rest.connectors()
        assert probe(rest).runs_exactly_once is False
        assert rest.connectors() == before


def test_each_mode_is_told_with_all_layers_agreeing(cluster: Cluster) -> None:
    for mode in Mode:
        if mode is not Mode.DISABLED:
            cluster.change(mode)
        modes = cluster.modes()
        assert verdicts(modes) == [mode] * len(modes), [m.reason for m in modes.values()]
        assert [m.disagreements for m in modes.values()] == [()] * len(modes)
        for worker in modes.values():
            assert worker.declared.mode is mode
            assert worker.running.mode is mode
            assert worker.observed.runs_exactly_once is mode.runs_exactly_once_tasks
        assert verdicts(cluster.modes(without_log)) == [mode] * len(modes), (
            "the untouched file should do in the log's stead"
        )
        cluster.let_the_leader_write()
        evidence = cluster.leader_evidence()
        assert evidence.transactional is mode.uses_transactional_leader, evidence.detail
    # Down again: the transactional id lingers, which must not pass for a leader that still uses it.
    cluster.change(Mode.DISABLED)
    cluster.let_the_leader_write()
    modes = cluster.modes()
    assert verdicts(modes) == ["disabled"] * len(modes), [m.reason for m in modes.values()]
    assert cluster.leader_evidence().transactional is None
    assert "proves the past" in cluster.leader_evidence().detail


def test_a_file_newer_than_its_process_is_a_disagreement_and_mixed_modes_are_told_worker_by_worker(
    lab: Any, cluster: Cluster
) -> None:
    first, second = cluster.hosts
    host = cluster.hosts[first]
    host.edit({MODE_PROPERTY: "preparing"}, expect=host.observe().digest or "")
    mode = cluster.modes()[first]
    assert mode.verdict is ModeVerdict.DISABLED
    assert mode.joins_as is Mode.PREPARING
    (sentence,) = mode.disagreements
    assert "a restart will change the mode" in sentence
    blind = cluster.modes(without_log)[first]
    leader_tells = cluster.leader() == first and not cluster.id_exists()
    assert blind.verdict is (ModeVerdict.DISABLED if leader_tells else ModeVerdict.UNKNOWN), blind.reason
    host.restart()
    cluster.wait_until_joined(first)
    assert cluster.modes()[first].verdict is ModeVerdict.PREPARING

    lab.add_worker(mode=Mode.DISABLED)
    mixed = Cluster.of(lab.cluster())
    mixed.change(Mode.ENABLED, second)
    assert verdicts(mixed.modes()) == ["preparing", "enabled", "disabled"]
    mixed.stop(first)
    stopped = mixed.modes()[first]
    assert stopped.verdict is ModeVerdict.UNKNOWN
    assert stopped.reason.startswith("stopped; will join as preparing")
    assert stopped.joins_as is Mode.PREPARING
    mixed.hosts[first].restart()
    mixed.wait_until_joined(first)
    assert verdicts(mixed.modes()) == ["preparing", "enabled", "disabled"]
