"""Writes records outside of any transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, Message

from airflow_eos_provider.errors import UnreachableError
from airflow_eos_provider.kafka.acl_values import Operation, Resource
from airflow_eos_provider.kafka.clients import ClientErrors, explain, quiet_producer
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

#: Leaves the choice to the producer.
ANY_PARTITION = -1


def write_plainly(
    settings: KafkaSettings,
    topic: str,
    records: Iterable[tuple[int, bytes, bytes | None]],
    what: str,
    *,
    seconds: float,
    once: bool = True,
    needs: Mapping[Resource, tuple[str, Sequence[Operation]]] = {},
) -> int:
    """Write records one by one. If one is refused, the records before it stay written.

    :param once: a retry must not append a record twice. It costs half a second: librdkafka asks for its producer id
        before it is connected, and asks again after that time.
    :returns: the broker's time of the last that was appended, milliseconds since the epoch.
    """
    failures: list[KafkaError] = []
    appended = 0

    def note(error: KafkaError | None, message: Message) -> None:
        nonlocal appended
        if error is not None:
            failures.append(error)
        else:
            appended = message.timestamp()[1]

    client_errors = ClientErrors()
    producer = quiet_producer(settings, client_errors, enable_idempotence=once)
    try:
        for partition, key, value in records:
            while True:
                try:
                    producer.produce(topic, value, key, partition=partition, on_delivery=note)
                    break
                except BufferError:
                    producer.poll(0.1)
        left = producer.flush(seconds)
    except KafkaException as error:
        raise explain(error.args[0], what, settings, client_errors, needs) from error
    if failures:
        raise explain(failures[0], what, settings, client_errors, needs)
    if left:
        raise UnreachableError(
            f"The Kafka cluster at {settings.bootstrap_servers} did not answer ({what}): "
            f"{client_errors.last or 'no answer in time'}.",
            remedy="Make the broker answer and try again.",
        )
    return appended
