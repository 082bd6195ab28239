"""Brokers leave out the marker of a commit in a partition that has no leader at that moment (KAFKA-20734).

They take the partition for deleted and call the transaction ended. When its broker is back, the records are there, said
to be committed, and no reader of committed records ever gets past them.
"""

from __future__ import annotations

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from tests.upstream.shown import SECONDS, StartLab
from tests.waiting import until

TOPIC, ID = "away", "writer"

#: The broker that has the only copy of the topic; another one takes over what it coordinates.
AWAY = 2


def show(start: StartLab) -> str:
    lab = start(workers=0, brokers=3)
    admin = AdminClient({"bootstrap.servers": lab.bootstrap_servers})
    with TransactionsClient(lab.broker.lab_client, timeout_seconds=60) as client:
        client.fence([ID])  # the brokers make their topic of transactions
    node = lab.brokers[AWAY].number
    made = NewTopic(TOPIC, num_partitions=1, replica_assignment=[[node]], config={"min.insync.replicas": "1"})
    admin.create_topics([made])[TOPIC].result(60)
    until(lambda: _leader(admin) == node, "the topic", seconds=SECONDS)

    settings = {"bootstrap.servers": lab.bootstrap_servers, "transactional.id": ID, "transaction.timeout.ms": 300_000}
    producer = Producer({**settings, "log_level": 2})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(TOPIC, b"committed, as the brokers say")
    assert producer.flush(60) == 0
    lab.stop_broker(AWAY)
    until(lambda: _leader(admin) == -1, "the partition to have no leader", seconds=SECONDS)
    producer.commit_transaction(60)
    with TransactionsClient(lab.broker.lab_client, timeout_seconds=60) as client:
        until(lambda: not client.open_transactions(ID), "the transaction to have ended", seconds=SECONDS)
    lab.start_broker(AWAY)
    until(lambda: _leader(admin) == node, "the partition to have its leader again", seconds=SECONDS)

    stable, end = (_end(admin, level) for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED))
    assert (stable, end) == (0, 1), (stable, end)
    return f"the commit was answered as done; readers of committed records stand at {stable}, the log ends at {end}"


def _leader(admin: AdminClient) -> int:
    topic = admin.list_topics(TOPIC, timeout=30).topics[TOPIC]
    return topic.partitions[0].leader if topic.partitions else -1


def _end(admin: AdminClient, level: IsolationLevel) -> int:
    place = TopicPartition(TOPIC, 0)
    asked = admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=level, request_timeout=30)
    return int(asked[place].result(60).offset)
