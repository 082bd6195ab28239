"""``with_librdkafka.py BOOTSTRAP_SERVERS TOPIC…``: a line of JSON for each committed record."""

from __future__ import annotations

import json
import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition


def text(value):
    return None if value is None else value.decode()


servers, *topics = sys.argv[1:]
consumer = Consumer(
    {
        "bootstrap.servers": servers,
        "group.id": "old",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
)
known = consumer.list_topics(timeout=60).topics
places = [TopicPartition(topic, number, OFFSET_BEGINNING) for topic in topics for number in known[topic].partitions]
consumer.assign(places)
at_end = set()
while len(at_end) < len(places):
    for message in consumer.consume(1_000, 60):
        if message.error() is None:
            headers = [[name, text(value)] for name, value in message.headers() or ()]
            record = {"topic": message.topic(), "key": text(message.key()), "value": text(message.value())}
            print(json.dumps({**record, "headers": headers}))  # noqa: T201
        else:
            at_end.add((message.topic(), message.partition()))
consumer.close()
