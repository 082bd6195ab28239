"""The interval writer's producer without its transactions, to tell what they cost."""

from __future__ import annotations

from confluent_kafka import Producer

from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.write.slice_writer import open_producer, producer_properties
from airflow_eos_provider.kafka.clients import ClientErrors, quiet_producer
from airflow_eos_provider.kafka.write.producer import TransactionalProducer


class PlainProducer(TransactionalProducer):
    """The same settings and the same calls; nothing is begun, and a commit is a flush."""

    def __init__(self, pipeline: Pipeline) -> None:
        like = open_producer(pipeline, "unused")  # never initialised, so no id is taken
        self.__dict__.update(like.__dict__)
        self._producer: Producer = quiet_producer(
            pipeline.kafka,
            ClientErrors(),
            enable_idempotence=True,
            partitioner="murmur2_random",
            delivery_report_only_error=True,
            **{name.replace(".", "_"): value for name, value in producer_properties(pipeline).items()},
        )

    def init(self) -> None:
        pass

    def begin(self) -> None:
        pass

    def commit(self) -> None:
        self.flush()

    def abort(self) -> None:
        pass
