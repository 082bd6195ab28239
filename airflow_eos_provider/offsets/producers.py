"""In which Kafka cluster the producers of a connector's tasks are, and with them its transactional ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from airflow_eos_provider.connect.cluster.other_kafka import ClientAddresses
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.connect.topics.internal_topics import read_worker_files
from airflow_eos_provider.kafka.session import Session


@dataclass(frozen=True, slots=True)
class ProducerCluster:
    """The Kafka cluster of a connector's producers."""

    kafka: Session
    cluster_id: str = ""  #: of another one than the workers'; empty for theirs


class WorkersKafka:
    """The workers' Kafka cluster, and which addresses of brokers are not in it."""

    def __init__(self, session: ConnectSession) -> None:
        self._session = session

    @cached_property
    def _addresses(self) -> ClientAddresses:
        files = read_worker_files(self._session.cluster)
        return ClientAddresses(files.properties.values(), self._session.kafka.settings.bootstrap_servers)

    @cached_property
    def _own_id(self) -> str:
        return self._session.kafka.cluster_id()


class Producers(WorkersKafka):
    """Finds the Kafka cluster of producers."""

    def of(self, config: Mapping[str, str | None]) -> ProducerCluster:
        """That of a connector."""
        elsewhere = self._addresses.elsewhere(config).get("producer")
        if elsewhere is not None:
            cluster_id = self._session.other_kafka.id_of(elsewhere)
            if cluster_id != self._own_id:
                return ProducerCluster(self._session.other_kafka.session(elsewhere), cluster_id)
        return ProducerCluster(self._session.kafka)
