"""Which host a described worker has: one entry per kind of :data:`~airflow_eos_provider.connect.cluster.HOST_KINDS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from airflow_eos_provider.connect.cluster import WorkerDescription
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.rollout.hosts.host import Host
from airflow_eos_provider.rollout.hosts.process.host import ProcessHost

HostFactory = Callable[[WorkerDescription], Host]

KINDS: Mapping[str, HostFactory] = {"process": ProcessHost}


def host_of(worker: WorkerDescription) -> Host:
    """The host of a worker.

    :raises ConfigurationError: its kind is none that is known.
    """
    try:
        return KINDS[worker.host](worker)
    except KeyError:
        raise ConfigurationError(
            f"{worker.worker_id} has a host of kind {worker.host!r}.", expected=f"one of {', '.join(KINDS)}"
        ) from None
