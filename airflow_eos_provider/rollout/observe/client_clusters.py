"""The Kafka clusters that a source connector's clients use, where its workers or it name others than the workers' own.

A client's addresses are those of the connector's override (KIP-458), else those that the worker's file gives all
producers, consumers or admin clients, else the worker's own (``Worker.baseProducerConfigs`` and its like).
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

#: The clients of a source connector: its producers, the consumer of its offsets, and the one that fences its producers.
CLIENTS = ("producer", "consumer", "admin")

#: By these a connector's clients use other addresses than its workers.
OVERRIDES = {client: f"{client}.override.bootstrap.servers" for client in CLIENTS}

Addresses = frozenset[str]


@dataclass(frozen=True, slots=True)
class ClientClusters:
    """Where the clients of one source connector are.

    :param workers: the id of the workers' Kafka cluster.
    :param producer: that of the connector's producers; likewise ``consumer``, of its offsets, and ``admin``, which
        fences its producers.
    :param has_own_topic: whether its configuration names an offsets topic of its own.
    :param problem: why a cluster is not known; empty if all are.
    :param remedy: what to do about that.
    """

    workers: str
    producer: str
    consumer: str
    admin: str
    has_own_topic: bool
    problem: str = ""
    remedy: str = ""


class ClientClusterLook:
    """Asks brokers for the id of their cluster, each at most once, and without a login.

    Whoever may configure a connector writes such addresses, so neither password nor token is sent there.

    :param kafka: the workers' Kafka cluster.
    """

    def __init__(self, kafka: Session) -> None:
        self._kafka = kafka
        self._ids: dict[Addresses, str | EosError] = {}

    def look(self, observation: Observation) -> dict[str, ClientClusters]:
        """By name, the source connectors that are not stopped and whose clients have addresses of their own.

        Those whose clients have all the same, with an offsets topic of their own, are left out: their offsets stay
        where they are, whichever cluster that is.

        :raises UnreachableError: no broker of the workers' cluster answers.
        """
        properties = [worker.facts.properties for worker in observation.workers]
        own = {_addresses(given["bootstrap.servers"]) for given in properties if given.get("bootstrap.servers")}
        own.add(_addresses(self._kafka.settings.bootstrap_servers))
        defaults = {
            client: next((each[name] for each in properties if each.get(name)), "")
            for client, name in ((client, f"{client}.bootstrap.servers") for client in CLIENTS)
        }
        found = {}
        for name, state in sorted(observation.config.connectors.items() if observation.config else ()):
            status = (observation.statuses or {}).get(name)
            if state.target_state == "STOPPED" or (status is not None and status.type == "sink"):
                continue
            given = {client: state.config.get(OVERRIDES[client]) or defaults[client] for client in CLIENTS}
            elsewhere = {client: text for client, text in given.items() if text and _addresses(text) not in own}
            has_own_topic = bool(state.config.get(OWN_TOPIC))
            all_alike = len(elsewhere) == len(CLIENTS) and len({_addresses(text) for text in elsewhere.values()}) == 1
            if elsewhere and not (all_alike and has_own_topic):
                found[name] = self._of(elsewhere, has_own_topic=has_own_topic)
        return found

    def _of(self, elsewhere: Mapping[str, str], *, has_own_topic: bool) -> ClientClusters:
        own = self._kafka.cluster_id()
        ids, problem, remedy = dict.fromkeys(CLIENTS, own), "", ""
        for client, text in elsewhere.items():
            if any(references(text)):
                problem = f"a config provider supplies the addresses of its {client}"
                remedy = f"write them into {OVERRIDES[client]}"
                continue
            try:
                ids[client] = self._id_of(text)
            except EosError as error:
                problem = f"the Kafka cluster of its {client}, {text}, is not known: {error.found}"
                remedy = "make these brokers answer here without a login"
        return ClientClusters(
            workers=own,
            producer=ids["producer"],
            consumer=ids["consumer"],
            admin=ids["admin"],
            has_own_topic=has_own_topic,
            problem=problem,
            remedy=remedy,
        )

    def _id_of(self, text: str) -> str:
        addresses = _addresses(text)
        if addresses not in self._ids:
            try:
                with Session(KafkaSettings.of(text, _without_login(self._kafka.settings.properties))) as other:
                    self._ids[addresses] = other.cluster_id()
            except EosError as error:
                self._ids[addresses] = error
        found = self._ids[addresses]
        if isinstance(found, EosError):
            raise found
        return found


def _addresses(text: str) -> Addresses:
    return frozenset(address.strip() for address in text.split(","))


def _without_login(properties: Mapping[str, str]) -> dict[str, str]:
    """Client properties without password, token or certificate of this client; TLS stays."""
    kept = {name: value for name, value in properties.items() if not name.startswith("sasl.")}
    kept = {name: value for name, value in kept.items() if not name.startswith(("ssl.key", "ssl.certificate"))}
    protocol = kept.get("security.protocol", "")
    if protocol.upper().startswith("SASL_"):
        kept["security.protocol"] = protocol[len("SASL_") :]
    return kept
