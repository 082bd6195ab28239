"""The Kafka clusters of a source connector's clients, where its workers or it name others than the workers' own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_eos_provider.connect.cluster.other_kafka import CLIENTS, ClientAddresses, OtherKafka, addresses_of
from airflow_eos_provider.connect.topics.internal_topics import OWN_TOPIC
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.rollout.observe.observation import Observation


@dataclass(frozen=True, slots=True)
class ClientClusters:
    """Where the clients of one source connector are.

    :param workers: the id of the workers' Kafka cluster; ``producer``, ``consumer`` (of its offsets) and ``admin``
        (which fences its producers): that of the connector's clients.
    :param has_own_topic: whether its configuration names an offsets topic of its own.
    :param problem: why a cluster is not known; empty if all are.
    """

    workers: str
    producer: str
    consumer: str
    admin: str
    has_own_topic: bool
    problem: str = ""
    remedy: str = ""


def client_clusters(kafka: Session, others: OtherKafka, observation: Observation) -> dict[str, ClientClusters]:
    """By name, the source connectors that are not stopped and whose clients have addresses of their own.

    Those whose clients have all the same, with an offsets topic of their own, are left out: their offsets stay where
    they are, whichever cluster that is. Each cluster is asked for its id at most once.

    :param kafka: the workers' Kafka cluster.
    """
    properties = [worker.facts.properties for worker in observation.workers]
    addresses = ClientAddresses(properties, kafka.settings.bootstrap_servers)
    found = {}
    for name, state in sorted(observation.config.connectors.items() if observation.config else ()):
        status = (observation.statuses or {}).get(name)
        if state.target_state == "STOPPED" or (status is not None and status.type == "sink"):
            continue
        elsewhere = addresses.elsewhere(state.config)
        has_own_topic = bool(state.config.get(OWN_TOPIC))
        all_alike = len(elsewhere) == len(CLIENTS) and len(set(map(addresses_of, elsewhere.values()))) == 1
        if elsewhere and not (all_alike and has_own_topic):
            found[name] = _clusters(kafka, others, elsewhere, has_own_topic=has_own_topic)
    return found


def _clusters(
    kafka: Session, others: OtherKafka, elsewhere: Mapping[str, str], *, has_own_topic: bool
) -> ClientClusters:
    own = kafka.cluster_id()
    ids, problem, remedy = dict.fromkeys(CLIENTS, own), "", ""
    for client, text in elsewhere.items():
        try:
            ids[client] = others.id_of(text)
        except EosError as error:
            problem = f"the Kafka cluster of its {client}, {text}, cannot be determined: {error.found}"
            remedy = others.remedy(text)
    return ClientClusters(own, **ids, has_own_topic=has_own_topic, problem=problem, remedy=remedy)
