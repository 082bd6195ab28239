"""A transaction that hangs in a partition, made on a real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from kafka import TopicPartition as Place
from kafka.admin import AbortTransactionSpec, KafkaAdminClient
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.lab.lab import Lab
from tests.waiting import until

#: Kafka's error code of a record whose partition is not part of its producer's transaction.
INVALID_TXN_STATE = 48


@dataclass(frozen=True)
class HangingTransaction:
    """A record in a transaction that no coordinator knows, as a producer's late write leaves one (KIP-890).

    Brokers since 3.6 refuse such a write, unless ``transaction.partition.verification.enable`` is false.
    """

    admin: Any
    place: Place
    producer_id: int
    epoch: int

    @classmethod
    @contextmanager
    def on(cls, lab: Lab, topic: str, partition: int) -> Iterator[HangingTransaction]:
        with TransactionsClient(lab.cluster().kafka) as client:
            producer = client.fence(["late"])["late"]
        verify_partitions(lab, False)
        admin = KafkaAdminClient(bootstrap_servers=lab.bootstrap_servers)
        try:
            transaction = cls(admin, Place(topic, partition), *producer)
            # The broker takes its new setting over a moment after it was answered, and refuses the write until then.
            until(lambda: admin._manager.run(transaction.is_written), "a late write to be taken", seconds=60)
            yield transaction
        finally:
            admin.close()
            verify_partitions(lab, True)

    async def is_written(self) -> bool:
        """One attempt to write the record."""
        batch = DefaultRecordBatchBuilder(2, 0, True, self.producer_id, self.epoch, 0, 1000)
        batch.append(0, int(time.time() * 1000), None, b"late", [])
        of_topic = ProduceRequest.TopicProduceData
        records = of_topic.PartitionProduceData(index=self.place.partition, records=bytes(batch.build()))
        request = ProduceRequest(
            transactional_id="late",
            acks=-1,
            timeout_ms=20_000,
            topic_data=[of_topic(name=self.place.topic, partition_data=[records])],
            max_version=9,  # later ones make the partition known to the coordinator
        )
        (leader,) = await self.admin._async_get_leader_for_partitions([self.place])
        response = await self.admin._manager.send(request, node_id=leader)
        code = response.responses[0].partition_responses[0].error_code
        assert code in (0, INVALID_TXN_STATE), response
        return bool(code == 0)

    def abort(self) -> None:
        self.admin.abort_transaction(AbortTransactionSpec(self.place, self.producer_id, self.epoch))


def verify_partitions(lab: Lab, enabled: bool) -> None:
    """Whether the broker asks the coordinator before it takes a transaction's first record for a partition."""
    entry = ConfigEntry(
        "transaction.partition.verification.enable",
        str(enabled).lower(),
        incremental_operation=AlterConfigOpType.SET,
    )
    broker = ConfigResource(ResourceType.BROKER, str(lab.broker.number), incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": lab.bootstrap_servers})
    admin.incremental_alter_configs([broker])[broker].result(timeout=180)
