"""Managed services of Kafka Connect, known by the host names of their REST addresses: their workers cannot be rolled.

A roll edits each worker's settings and restarts the worker. A managed service does not allow that. What it allows
instead is from the providers' own documents (2026-08), cited next to each entry.

Your own workers with managed brokers (Connect on virtual machines with Amazon MSK, Confluent Cloud or Event Hubs) can
be rolled: a broker's name says nothing about the workers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from airflow_eos_provider.connect.cluster.worker import WorkerDescription
from airflow_eos_provider.connect.mode import MODE_PROPERTY


@dataclass(frozen=True, slots=True)
class ManagedService:
    """Kafka Connect that its provider operates.

    :param hosts: matches the host names of its REST addresses.
    """

    name: str
    hosts: re.Pattern[str] = field(repr=False)
    why: str
    instead: str


def _hosts(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?:.+\.)?{pattern}\.?", re.IGNORECASE)


SERVICES = (
    ManagedService(
        "Amazon MSK Connect",
        _hosts(r"kafkaconnect(?:-fips)?\.[a-z0-9-]+\.(?:amazonaws\.com(?:\.cn)?|api\.aws)"),
        # docs.aws.amazon.com/msk/latest/developerguide: msk-connect-workers, -supported-worker-config-properties
        why="a worker configuration is fixed when a connector is created, and there is no access to the workers",
        instead=f"create a worker configuration with {MODE_PROPERTY}, delete the connector, and create it again with "
        "that, under the same name and with the same offset.storage.topic: it resumes from its offsets",
    ),
    ManagedService(
        "Confluent Cloud",
        _hosts(r"confluent\.cloud"),
        # docs.confluent.io/cloud/current/connectors/offsets.html
        why="it gives no access to the workers of its connectors",
        instead="its own API can read, alter and reset offsets (connect/v1/…/connectors/NAME/offsets); for "
        "exactly-once sources, run your own Kafka Connect with its brokers",
    ),
    ManagedService(
        "Google Cloud Managed Service for Apache Kafka",
        _hosts(r"(?:managedkafka\.googleapis\.com|managedkafka\.[a-z0-9.-]+\.cloud\.goog)"),
        # docs.cloud.google.com: ConnectCluster.config; gcloud managed-kafka connect-clusters update
        why="it writes its workers' settings and restarts them itself",
        instead=f"its Connect cluster takes the property: 'gcloud managed-kafka connect-clusters update NAME "
        f"--location=… --configs={MODE_PROPERTY}=preparing', and once every worker has restarted the same with enabled",
    ),
    ManagedService(
        "Aiven for Apache Kafka Connect",
        _hosts(r"aivencloud\.com"),
        # registry.terraform.io/providers/aiven/aiven: kafka_connect_user_config.kafka_connect
        why="it writes its workers' settings and restarts them itself, and its user configuration has no "
        f"{MODE_PROPERTY}",
        instead="sinks can read committed records only (consumer_isolation_level=read_committed in the service's user "
        "configuration); for exactly-once sources, run your own Kafka Connect with its brokers",
    ),
)


def managed_service(url: str) -> ManagedService | None:
    """The managed service that a REST address belongs to, by its host name; None for none that is known."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return None
    return next((service for service in SERVICES if service.hosts.fullmatch(host)), None)


def managed_workers(workers: Iterable[WorkerDescription]) -> dict[str, ManagedService]:
    found = {worker.worker_id: managed_service(worker.url) for worker in workers}
    return {worker_id: service for worker_id, service in found.items() if service is not None}
