"""Which host a described worker gets."""

from __future__ import annotations

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.rollout.hosts.choose import host_of
from airflow_eos_provider.rollout.hosts.process.host import ProcessHost


def test_a_worker_without_machine_and_service_is_a_process_of_this_machine() -> None:
    assert isinstance(host_of(WorkerDescription("http://w1:8083")), ProcessHost)
