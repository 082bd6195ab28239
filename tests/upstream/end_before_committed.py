"""A reader of committed records takes the last stable offset for the end, and misses what others have committed.

With a transaction open at offset 0, a record that another producer has committed at offset 1 is not read, and the end
that the broker names is 0. Whoever stops there takes what is committed for not done.
"""

from __future__ import annotations

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.upstream.shown import SECONDS, StartLab, delivered
from tests.waiting import until

TOPIC = "progress"


def show(start: StartLab) -> str:
    lab = start(workers=0)
    lab.create_topic(TOPIC)
    open_one, other = (_producer(lab.bootstrap_servers, name) for name in ("open", "other"))
    open_one.produce(TOPIC, b"not decided")
    assert open_one.flush(60) == 0
    other.produce(TOPIC, b"committed")
    other.commit_transaction(60)

    admin = AdminClient({"bootstrap.servers": lab.bootstrap_servers})
    until(lambda: _end(admin, IsolationLevel.READ_UNCOMMITTED) == 3, "the commit's marker", seconds=SECONDS)
    stable = _end(admin, IsolationLevel.READ_COMMITTED)
    assert stable == 0, stable
    open_one.abort_transaction(60)
    assert delivered(lab, TOPIC) == ["committed"]
    return "for readers of committed records the topic ended at 0, with a committed record at 1"


def _end(admin: AdminClient, level: IsolationLevel) -> int:
    place = TopicPartition(TOPIC, 0)
    return int(admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=level)[place].result(60).offset)


def _producer(bootstrap_servers: str, name: str) -> Producer:
    """One with a transaction begun."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    return producer
