"""The Kafka clusters that a source connector's clients use, where its configuration names others than the workers'.

Connect compares such addresses as text (``Worker.sameOffsetTopicAsWorker``). Another listener of the same cluster has
another text, so a roll asks the brokers behind it for the id of their cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_eos_provider.connect.internal_topics import OWN_TOPIC
from airflow_eos_provider.connect.properties import references
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.config import KafkaSettings
from airflow_eos_provider.kafka.session import Session
from airflow_eos_provider.rollout.observe.observation import Observation

#: By these a connector's clients use another Kafka cluster than its workers (KIP-458).
OVERRIDES = {client: f"{client}.override.bootstrap.servers" for client in ("producer", "consumer", "admin")}


@dataclass(frozen=True, slots=True)
class ClientClusters:
    """Where the clients of one source connector are.

    :param workers: the id of the workers' Kafka cluster.
    :param producer: that of the connector's producers; likewise ``consumer``, of its offsets, and ``admin``, which
        fences its producers.
    :param has_own_topic: whether its configuration names an offsets topic of its own.
    :param is_stopped: whether nothing of it runs.
    :param problem: why a cluster is not known; empty if all are.
    """

    workers: str
    producer: str
    consumer: str
    admin: str
    has_own_topic: bool
    is_stopped: bool
    problem: str = ""


class ClientClusterLook:
    """Asks for the ids of clusters; each that has answered is asked once.

    :param kafka: the workers' Kafka cluster.
    """

    def __init__(self, kafka: Session) -> None:
        self._kafka = kafka
        self._ids: dict[str, str] = {}

    def look(self, observation: Observation) -> dict[str, ClientClusters]:
        """By name, the source connectors whose configuration names addresses for their clients.

        :raises UnreachableError: no broker of the workers' cluster answers.
        """
        found = {}
        for name, state in sorted(observation.config.connectors.items() if observation.config else ()):
            status = (observation.statuses or {}).get(name)
            is_source = status is None or status.type != "sink"
            if is_source and any(state.config.get(override) for override in OVERRIDES.values()):
                found[name] = self._of(state.config, is_stopped=state.target_state == "STOPPED")
        return found

    def _of(self, config: Mapping[str, str | None], *, is_stopped: bool) -> ClientClusters:
        own = self._id_of(self._kafka.settings.bootstrap_servers)
        ids, problem = dict.fromkeys(OVERRIDES, own), ""
        for client, override in OVERRIDES.items():
            addresses = config.get(override)
            if not addresses:
                continue
            if any(references(addresses)):
                problem = f"a config provider supplies {override}"
                continue
            try:
                ids[client] = self._id_of(addresses)
            except EosError as error:
                problem = f"the Kafka cluster of {override}={addresses} is not known: {error.found}"
        return ClientClusters(
            workers=own,
            producer=ids["producer"],
            consumer=ids["consumer"],
            admin=ids["admin"],
            has_own_topic=bool(config.get(OWN_TOPIC)),
            is_stopped=is_stopped,
            problem=problem,
        )

    def _id_of(self, addresses: str) -> str:
        own = self._kafka.settings
        if addresses not in self._ids:
            if addresses == own.bootstrap_servers:
                self._ids[addresses] = self._kafka.cluster_id()
            else:
                with Session(KafkaSettings.of(addresses, own.properties)) as other:
                    self._ids[addresses] = other.cluster_id()
        return self._ids[addresses]
