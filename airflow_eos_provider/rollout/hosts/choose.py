"""Which host a described worker has."""

from __future__ import annotations

from collections.abc import Callable

from airflow_eos_provider.connect.cluster import WorkerDescription
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.rollout.hosts.host import Host
from airflow_eos_provider.rollout.hosts.process.host import ProcessHost

HostFactory = Callable[[WorkerDescription], Host]


def host_of(worker: WorkerDescription) -> Host:
    """The host of a worker.

    :raises ConfigurationError: its kind is none that is known.
    """
    if worker.machine is not None or worker.service is not None:
        raise ConfigurationError(f"{worker.worker_id} has a machine or a service, which this version does not roll.")
    return ProcessHost(worker)
