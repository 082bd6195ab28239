"""The mode of each worker of a lab, by its file, its log, its REST API and the leader's transactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from airflow_eos_provider.connect.group import describe_group
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.mode_evidence import (
    LeaderEvidence,
    Observed,
    Running,
    WorkerMode,
    judge,
    leader_evidence,
    probe,
)
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.rollout.hosts.choose import host_of
from tests.integration.offsets_cluster import FILE_SOURCE
from tests.waiting import wait_for

Change = Callable[[Running], Running]


def unchanged(running: Running) -> Running:
    return running


def without_log(running: Running) -> Running:
    return replace(running, mode=None, detail="no log")


def without_file_and_log(_: Running) -> Running:
    return Running(None, "another machine", None, None)


class Evidence:
    """What can be known of the workers of a lab."""

    def __init__(self, lab: Lab) -> None:
        self.cluster = lab.cluster()
        self.hosts = {worker.worker_id: host_of(worker) for worker in self.cluster.workers}

    def leader(self) -> str | None:
        leader = describe_group(self.cluster.kafka, self.cluster.group_id).leader
        return leader.worker_id if leader else None

    def has_leaders_id(self) -> bool:
        """Whether a leader has ever used its transactional id."""
        with TransactionsClient(self.cluster.kafka) as client:
            return bool(client.describe([f"connect-cluster-{self.cluster.group_id}"]))

    def modes(self, change: Change = unchanged) -> dict[str, WorkerMode]:
        """The judgement on every worker.

        :param change: takes layers of evidence away.
        """
        facts = {worker_id: host.observe() for worker_id, host in self.hosts.items()}
        leader = self.leader()
        newest = max((fact.running.started_at or 0.0) for fact in facts.values())
        topic = next(iter(facts.values())).properties["config.storage.topic"]
        found = {}
        for worker_id, fact in facts.items():
            observed = self._observed(worker_id)
            if worker_id == leader:
                with TransactionsClient(self.cluster.kafka) as client:
                    evidence = leader_evidence(client, self.cluster.group_id, topic, newest)
                observed = replace(observed, leader_evidence=evidence)
            found[worker_id] = judge(worker_id, fact.declared, change(fact.running), observed)
        return found

    def verdicts(self, change: Change = unchanged) -> list[str]:
        return [str(mode.verdict) for mode in self.modes(change).values()]

    def of_leader(self) -> LeaderEvidence:
        """What the leader's transactions show, once it has written to the config topic."""
        config = {"connector.class": FILE_SOURCE, "file": "/dev/null", "topic": "none"}
        with ConnectRest(self.cluster.workers[0].url, self.cluster.rest, retry_seconds=180) as rest:
            rest.create("let-the-leader-write", config, initial_state="STOPPED")  # and do nothing else
            rest.delete("let-the-leader-write")
        found: list[LeaderEvidence] = []

        def look() -> bool:
            found.extend(e for m in self.modes().values() if (e := m.observed.leader_evidence) is not None)
            return bool(found)

        wait_for("a group with a leader", look)
        return found[0]

    def _observed(self, worker_id: str) -> Observed:
        try:
            with ConnectRest(self.cluster.worker(worker_id).url, self.cluster.rest, retry_seconds=180) as rest:
                return probe(rest)
        except EosError as error:
            return Observed(None, error.found)


def assert_told(lab: Lab, mode: Mode, *, leader_left_its_id: bool = False) -> None:
    """Every worker runs in this mode, by all layers of evidence, which agree.

    :param leader_left_its_id: whether the group ran in another mode before, so that the leader's id proves the past.
    """
    evidence = Evidence(lab)
    modes = evidence.modes()
    assert [str(each.verdict) for each in modes.values()] == [mode] * len(modes), [m.reason for m in modes.values()]
    assert [each.disagreements for each in modes.values()] == [()] * len(modes)
    for worker in modes.values():
        assert worker.declared.mode is mode
        assert worker.running.mode is mode
        assert worker.observed.runs_exactly_once is mode.runs_exactly_once_tasks
    assert evidence.verdicts(without_log) == [mode] * len(modes), "the untouched file should do in the log's stead"
    of_leader = evidence.of_leader()
    assert of_leader.transactional is (None if leader_left_its_id else mode.uses_transactional_leader), of_leader.detail
    assert ("proves the past" in of_leader.detail) is leader_left_its_id
