"""Questions about topics through kafka-python's connections, for Spark's executors, which have no librdkafka."""

from __future__ import annotations

import base64
import time
import uuid
import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import kafka.errors
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.kafka.questions import CONNECT_SECONDS, Offsets, TopicDescription
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.wire import NotSentError, Wire, explained, may_pass

T = TypeVar("T")

#: Between two tries of a question that no broker took, seconds.
_PAUSE_SECONDS = 0.02

#: ``ConfigResource.Type`` of a topic.
_TOPIC = 2

#: Who is asked does not know the topic, or knows another one of its name.
NOT_KNOWN = (
    kafka.errors.UnknownTopicOrPartitionError.errno,
    kafka.errors.UnknownTopicIdError.errno,
    kafka.errors.InconsistentTopicIdError.errno,
)


class WireQuestions:
    """See :class:`~airflow_eos_provider.kafka.questions.Questions`. It connects in the background.

    :param settings: the Kafka cluster.
    :ivar wire: the connections.
    :raises ConfigurationError: a property has no counterpart in kafka-python.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.wire = Wire(settings, connect_seconds=CONNECT_SECONDS)
        weakref.finalize(self, self.wire.close).atexit = False

    def close(self) -> None:
        self.wire.close()

    def run(self, what: str, act: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """What a coroutine gives, which bounds its own time; errors in this package's words.

        :param what: the action in words.
        """
        try:
            return self.wire.run(act, *arguments)
        except (kafka.errors.KafkaError, OSError, RuntimeError) as error:
            raise explained(error, what, self.settings) from error

    def partitions_of(self, topic: str, seconds: float) -> tuple[str | None, set[int]] | None:
        found = self._topics([topic], seconds).get(topic)
        return found and (id_text(found.topic_id) or None, {each.partition_index for each in found.partitions})

    def described(self, names: Sequence[str], seconds: float) -> dict[str, TopicDescription]:
        found = {}
        for name, topic in self._topics(names, seconds).items():
            copies = [len(partition.replica_nodes) for partition in topic.partitions] or [0]
            found[name] = TopicDescription(id_text(topic.topic_id), len(topic.partitions), max(copies), min(copies))
        return found

    def topic_settings(self, names: Sequence[str], seconds: float) -> dict[str, dict[str, str]]:
        def make() -> Any:
            resource = DescribeConfigsRequest.DescribeConfigsResource
            wanted = [resource(resource_type=_TOPIC, resource_name=name, configuration_keys=None) for name in names]
            return DescribeConfigsRequest(resources=wanted, include_synonyms=False, include_documentation=False)

        what = f"reading the settings of topic {', '.join(names)} (DescribeConfigs)"
        found = {}
        for topic in self.run(what, self._ask, make, seconds).results:
            if not topic.error_code:
                found[topic.resource_name] = {each.name: each.value for each in topic.configs}
            elif topic.error_code != kafka.errors.UnknownTopicOrPartitionError.errno:
                raise explained(kafka.errors.for_code(topic.error_code)(topic.resource_name), what, self.settings)
        return found

    def offsets(
        self, topic: str, partitions: Collection[int], at: int, *, committed: bool, seconds: float, what: str
    ) -> Offsets:
        found: dict[int, int] = {}
        late: dict[bool, EosError] = {}
        for partition, answer in self.run(what, self._offsets, topic, partitions, at, committed, seconds).items():
            if not isinstance(answer, Exception):
                found[partition] = answer
                continue
            error = explained(answer, what, self.settings)
            if not isinstance(answer, kafka.errors.RetriableError):
                raise error from answer
            late[getattr(answer, "errno", 0) in NOT_KNOWN] = error
        return Offsets(found, moved=late.get(False), unknown=late.get(True))

    def brokers(self, seconds: float) -> int:
        """How many brokers there are."""
        return len(self._metadata([], seconds).brokers)

    def ask_for_leaders(self, topic: str, seconds: float, what: str) -> None:
        self.run(what, self._refresh, topic, time.monotonic() + seconds)

    def _metadata(self, names: Sequence[str], seconds: float) -> Any:
        def make() -> Any:
            topic = MetadataRequest.MetadataRequestTopic
            return MetadataRequest(
                topics=[topic(name=name) for name in names],
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )

        what = f"describing topic {', '.join(names)}" if names else "asking for the brokers"
        return self.run(what, self._ask, make, seconds)

    def _topics(self, names: Sequence[str], seconds: float) -> dict[str, Any]:
        found = {}
        for topic in self._metadata(names, seconds).topics:
            error = kafka.errors.for_code(topic.error_code)
            if error is kafka.errors.InvalidTopicError:
                raise ConfigurationError(f"{topic.name!r} is not a name of a topic.")
            # Partitions without a leader are described all the same.
            if error in (kafka.errors.NoError, kafka.errors.LeaderNotAvailableError):
                found[topic.name] = topic
            elif error is not kafka.errors.UnknownTopicOrPartitionError:
                raise explained(error(topic.name), f"describing topic {topic.name}", self.settings)
        return found

    # On the connections' thread

    async def _ask(self, make: Callable[[], Any], seconds: float) -> Any:
        """Ask any broker, and another one if the first does not answer within half of the time."""
        deadline = time.monotonic() + seconds
        await self.wire.connected(deadline)
        while True:
            try:
                until = min(deadline, time.monotonic() + seconds / 2)
                return await self.wire.answer(make(), self.wire.any_broker(), until)
            except kafka.errors.KafkaError as error:
                if not may_pass(error) or time.monotonic() >= deadline:
                    raise
            await self.wire.pause(_PAUSE_SECONDS)

    async def _offsets(
        self, topic: str, partitions: Collection[int], at: int, committed: bool, seconds: float
    ) -> Mapping[int, int | Exception]:
        deadline = time.monotonic() + seconds
        await self.wire.connected(deadline)
        if any(self.wire.leader_of(topic, partition) is None for partition in partitions):
            await self._refresh(topic, deadline)
        by_leader: dict[int | None, list[int]] = defaultdict(list)
        for partition in partitions:
            by_leader[self.wire.leader_of(topic, partition)].append(partition)
        found: dict[int, int | Exception] = dict.fromkeys(
            by_leader.pop(None, ()), kafka.errors.LeaderNotAvailableError(topic)
        )
        pending = []
        for leader, led in by_leader.items():
            assert leader is not None
            try:
                pending.append((led, self.wire.send(_list_offsets(topic, led, at, committed), leader)))
            except NotSentError as error:
                found.update(dict.fromkeys(led, error.reason))
        for led, future in pending:
            try:
                (answered,) = (await self.wire.within(future, deadline)).topics
            except kafka.errors.KafkaError as error:
                found.update(dict.fromkeys(led, error))
            else:
                for each in answered.partitions:
                    code = each.error_code
                    found[each.partition_index] = kafka.errors.for_code(code)(topic) if code else each.offset
        return found

    async def _refresh(self, topic: str, deadline: float) -> None:
        while True:
            try:
                return await self.wire.refresh([topic], deadline)
            except kafka.errors.KafkaError as error:
                if not may_pass(error) or time.monotonic() >= deadline:
                    raise
            await self.wire.pause(_PAUSE_SECONDS)


def id_text(topic_id: uuid.UUID | None) -> str:
    """A topic id as Kafka's own tools spell it; empty without one."""
    return (
        base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=") if topic_id is not None and topic_id.int else ""
    )


def id_of(text: str) -> uuid.UUID:
    """The topic id that is spelled so."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(f"{text}=="))


def _list_offsets(topic: str, partitions: Collection[int], at: int, committed: bool) -> Any:
    place = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
    wanted = [place(partition_index=each, current_leader_epoch=-1, timestamp=at) for each in partitions]
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=wanted)],
    )
