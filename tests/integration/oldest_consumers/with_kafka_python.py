"""``with_kafka_python.py BOOTSTRAP_SERVERS ISOLATION TOPIC…``: a line of JSON for each record, read by kafka-python.

ISOLATION is empty for a version without that setting.
"""

from __future__ import annotations

import json
import sys

from kafka import KafkaConsumer, TopicPartition


def text(value):
    return None if value is None else bytes(value).decode()


servers, isolation, *topics = sys.argv[1:]
# Not position(): of some versions it never returns. It ends when nothing has come for so long.
options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "consumer_timeout_ms": 20_000}
if isolation:
    options["isolation_level"] = isolation
consumer = KafkaConsumer(bootstrap_servers=servers, **options)
consumer.assign([TopicPartition(topic, number) for topic in topics for number in consumer.partitions_for_topic(topic)])
for record in consumer:
    headers = [[name, text(value)] for name, value in record.headers]
    found = {"topic": record.topic, "key": text(record.key), "value": text(record.value)}
    print(json.dumps({**found, "headers": headers}))  # noqa: T201
consumer.close()
