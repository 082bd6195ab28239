"""Many records into a topic."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Producer

from airflow_eos_provider.lab.lab import Lab


def fill(lab: Lab, topic: str, records: Iterable[tuple[bytes, bytes, int]]) -> None:
    """Write records by a plain producer."""
    failed: list[object] = []
    producer = Producer(
        {
            **lab.kafka.confluent(),
            "linger.ms": 20,
            "log_level": 2,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failed.append(error),
        }
    )
    for key, value, partition in records:
        while True:
            try:
                producer.produce(topic, value, key, partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(300) == 0
    assert not failed, failed[0]
