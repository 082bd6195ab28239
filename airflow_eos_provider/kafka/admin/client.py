"""Questions about a cluster's topics and brokers, and changes of topics, through kafka-python's connections."""

from __future__ import annotations

import base64
import time
import uuid
import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import kafka.errors
from kafka.protocol.admin import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from airflow_eos_provider.data_text import first_few
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.kafka.acl_values import Operation
from airflow_eos_provider.kafka.questions import CONNECT_SECONDS, TopicDescription
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.wire import Wire, explained, is_refusal, may_pass

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

#: Kafka's ``AclOperation``, by number.
OPERATIONS = dict(enumerate(Operation, 2))

#: A topic's partition.
Place: TypeAlias = tuple[str, int]

#: Between two tries of a question that no broker took, and of one that was answered with "not now", seconds.
_PAUSE_SECONDS = 0.02
_ANSWER_PAUSE_SECONDS = 0.1

#: Requests on their way to one broker at a time. More gain nothing, for a broker works on one request of a connection
#: after the other; the connection's own limit has to be higher.
WINDOW = 200

#: ``ConfigResource.Type``, and ``AlterConfigOp.OpType.SET``.
_TOPIC, _BROKER = 2, 4
_SET = 0

#: The last version that tells what one may do with the cluster (KIP-430, KIP-700).
_METADATA_OF_CLUSTER = 10

_NOT_KNOWN = (
    kafka.errors.UnknownTopicOrPartitionError,
    kafka.errors.UnknownTopicIdError,
    kafka.errors.InconsistentTopicIdError,
)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A Kafka cluster: its id, the port of each broker, and what the principal may do with it."""

    id: str
    ports: Mapping[int, int]
    operations: frozenset[Operation]


class Admin:
    """The client for questions and changes. It connects in the background.

    Each method raises :class:`UnreachableError` where no broker answers in time, and :class:`ConfigurationError` where
    the principal may not ask; ``seconds`` is the limit of one.

    :ivar wire: the connections.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.wire = Wire(settings, connect_seconds=CONNECT_SECONDS)
        weakref.finalize(self, self.wire.close).atexit = False

    def close(self) -> None:
        self.wire.close()

    def run(self, what: str, act: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """Run a coroutine that limits its own time, and raise its errors as this package's."""
        try:
            return self.wire.run(act, *arguments)
        except (kafka.errors.KafkaError, OSError, RuntimeError) as error:
            if is_refusal(error):
                self.wire.forget_refusals()
            raise self.explain(error, what) from error

    def ask(self, what: str, question: Callable[[float], Coroutine[Any, Any, T]], seconds: float) -> T:
        """Run a coroutine that takes its deadline, and again while the answer is only "not now"."""
        found: T = self.run(what, self._again, question, seconds)
        return found

    def explain(self, error: Exception, what: str) -> EosError:
        """This package's error for one of kafka-python's."""
        return explained(error, what, self.settings)

    # Topics

    def topics(
        self, names: Collection[str] | None, seconds: float, *, hidden: Callable[[str], None] | None = None
    ) -> dict[str, TopicDescription]:
        """The topics that the broker knows; others are absent.

        :param names: None for all that the principal may see.
        :param hidden: called with a topic that the principal may not describe, which else is an error.
        """
        found = {}
        what = "listing the topics" if names is None else f"describing topic {first_few(names)}"
        for topic in self.run(what, self._ask, lambda: metadata(names), seconds).topics:
            error = kafka.errors.for_code(topic.error_code)
            # Partitions without a leader are described all the same.
            if error in (kafka.errors.NoError, kafka.errors.LeaderNotAvailableError):
                copies = [len(partition.replica_nodes) for partition in topic.partitions] or [0]
                leaders = {each.partition_index: each.leader_id for each in topic.partitions}
                found[topic.name] = TopicDescription(
                    id_text(topic.topic_id), len(leaders), max(copies), min(copies), leaders
                )
            elif error is kafka.errors.InvalidTopicError:
                raise ConfigurationError(f"{topic.name!r} is not a name of a topic.")
            elif error is kafka.errors.TopicAuthorizationFailedError and hidden is not None:
                hidden(topic.name)
            elif names is not None and error is not kafka.errors.UnknownTopicOrPartitionError:
                raise self.explain(error(topic.name), f"describing topic {topic.name}")
        return found

    def allowed(self, names: Collection[str], seconds: float) -> dict[str, frozenset[Operation] | None]:
        """By topic what the principal may do with it (KIP-430).

        None for a topic that does not exist, as far as the principal may know; empty for one that it may not see.
        """
        found: dict[str, frozenset[Operation] | None] = {}
        what = f"describing topic {first_few(names)}"
        if not names:
            return {}
        for topic in self.run(what, self._ask, lambda: metadata(names, operations=True), seconds).topics:
            error = kafka.errors.for_code(topic.error_code)
            if error is kafka.errors.UnknownTopicOrPartitionError:
                found[topic.name] = None
            elif error is kafka.errors.TopicAuthorizationFailedError:
                found[topic.name] = frozenset()
            elif error in (kafka.errors.NoError, kafka.errors.LeaderNotAvailableError):
                found[topic.name] = _operations(topic.authorized_operations)
            else:
                raise self.explain(error(topic.name), f"describing topic {topic.name}")
        return found

    def topic_settings(self, names: Collection[str], seconds: float) -> dict[str, dict[str, str]]:
        """By topic its settings; topics that the broker does not know are absent. Needs DescribeConfigs."""
        what = f"reading the settings of topic {first_few(names)} (DescribeConfigs)"
        found = {}
        for topic in self.run(what, self._ask, lambda: _describe_configs(_TOPIC, names), seconds).results:
            if not topic.error_code:
                found[topic.resource_name] = {each.name: each.value for each in topic.configs}
            elif topic.error_code != kafka.errors.UnknownTopicOrPartitionError.errno:
                raise self.explain(kafka.errors.for_code(topic.error_code)(topic.resource_name), what)
        return found

    def create_topic(
        self,
        name: str,
        partitions: int,
        replicas: int,
        settings: Mapping[str, str],
        seconds: float,
        *,
        only_validate: bool = False,
    ) -> kafka.errors.KafkaError | None:
        """Create a topic; -1 for the brokers' default. The answer of the controller, None if it has done so."""

        def make() -> Any:
            topic = CreateTopicsRequest.CreatableTopic
            configs = [topic.CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
            wanted = topic(
                name=name, num_partitions=partitions, replication_factor=replicas, assignments=[], configs=configs
            )
            return CreateTopicsRequest(topics=[wanted], timeout_ms=int(seconds * 1000), validate_only=only_validate)

        (answer,) = self.run(f"creating topic {name}", self._ask_controller, make, seconds).topics
        return error_in(answer)

    def delete_topic(self, name: str, seconds: float) -> kafka.errors.KafkaError | None:
        """Delete a topic. The answer of the controller, None if it has done so."""

        def make() -> Any:
            return DeleteTopicsRequest(
                topics=[DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=None)],
                topic_names=[name],
                timeout_ms=int(seconds * 1000),
            )

        (answer,) = self.run(f"deleting topic {name}", self._ask_controller, make, seconds).responses
        return error_in(answer)

    def change_topic(self, name: str, settings: Mapping[str, str], seconds: float) -> None:
        """Change settings of a topic, all or none; others stay. Needs AlterConfigs."""

        def make() -> Any:
            resource = IncrementalAlterConfigsRequest.AlterConfigsResource
            configs = [
                resource.AlterableConfig(name=key, config_operation=_SET, value=value)
                for key, value in settings.items()
            ]
            wanted = resource(resource_type=_TOPIC, resource_name=name, configs=configs)
            return IncrementalAlterConfigsRequest(resources=[wanted], validate_only=False)

        what = f"setting {', '.join(settings)} of topic {name} (AlterConfigs)"
        (answer,) = self.run(what, self._ask, make, seconds).responses
        if (error := error_in(answer)) is not None:
            raise self.explain(error, what) from error

    # Brokers

    def cluster(self, seconds: float, what: str = "describing the cluster") -> ClusterDescription:
        """The cluster and its brokers."""
        found = self.run(what, self._ask, lambda: metadata([], max_version=_METADATA_OF_CLUSTER), seconds)
        ports = {each.node_id: each.port for each in found.brokers}
        return ClusterDescription(str(found.cluster_id), ports, _operations(found.authorized_operations))

    def broker_settings(self, broker: int, seconds: float) -> dict[str, str | None]:
        """The settings of one broker; None for a value that it hides. Needs DescribeConfigs on the cluster."""
        what = f"reading the settings of broker {broker} (DescribeConfigs)"
        (answer,) = self.run(
            what, self._ask, lambda: _describe_configs(_BROKER, [str(broker)]), seconds, broker
        ).results
        if (error := error_in(answer)) is not None:
            raise self.explain(error, what) from error
        return {each.name: each.value for each in answer.configs}

    # Offsets

    def offsets(
        self, places: Collection[Place], at: int, seconds: float, what: str, *, committed: bool = False
    ) -> dict[Place, int | kafka.errors.KafkaError]:
        """Offsets of partitions in their order, or the errors of their leaders; -1 for a time after the last record.

        A leader that has just moved, or has not heard of the partition yet, is asked again in this time.

        :param at: a time, :data:`~airflow_eos_provider.kafka.questions.LATEST` or ``EARLIEST``.
        """
        return self.run(what, self._offsets, places, at, committed, seconds)

    # On the connections' thread

    async def connected(self, deadline: float) -> None:
        """Return when the brokers are known, or fail soon."""
        await self.wire.connected(min(deadline, time.monotonic() + CONNECT_SECONDS))

    async def brokers(self, deadline: float) -> list[int]:
        """The brokers that there are now, by their ids."""
        await self._refresh((), deadline)
        return self.wire.brokers()

    async def gather(self, requests: Iterable[tuple[K, Any, int]], deadline: float) -> list[tuple[K, Any]]:
        """Send requests to brokers, to all at once; by key each answer, or the error that came instead."""
        by_broker: defaultdict[int, list[tuple[K, Any]]] = defaultdict(list)
        for key, request, broker in requests:
            by_broker[broker].append((key, request))
        asking = [self.wire.start(self._answers_of, broker, theirs, deadline) for broker, theirs in by_broker.items()]
        return [each for answers in asking for each in await answers]

    async def answers(self, requests: Iterable[tuple[Any, int]], deadline: float) -> list[Any]:
        """As :meth:`gather`; any error is raised."""
        found = await self.gather(((None, *each) for each in requests), deadline)
        for _, answer in found:
            if isinstance(answer, Exception):
                raise answer
        return [answer for _, answer in found]

    async def settled(
        self,
        keys: Iterable[K],
        ask: Callable[[list[K], float], Coroutine[Any, Any, Mapping[K, V | kafka.errors.KafkaError]]],
        deadline: float,
    ) -> dict[K, V | kafka.errors.KafkaError]:
        """By key what it comes to; those with an error that may pass are asked for again, together."""
        found: dict[K, V | kafka.errors.KafkaError] = {}
        left = list(keys)
        while left:
            try:
                found |= await ask(left, deadline)
            except kafka.errors.KafkaError as error:  # of the question as a whole, such as who the coordinators are
                found |= dict.fromkeys(left, error)
            left = [key for key in left if isinstance(answer := found[key], Exception) and may_pass(answer)]
            if not left or time.monotonic() >= deadline:
                break
            await self.wire.pause(_ANSWER_PAUSE_SECONDS)
        return found

    async def _answers_of(self, broker: int, requests: list[tuple[K, Any]], deadline: float) -> list[tuple[K, Any]]:
        found: list[tuple[K, Any]] = []
        for start in range(0, len(requests), WINDOW):
            pending = [(key, self.wire.ask(request, broker)) for key, request in requests[start : start + WINDOW]]
            for key, future in pending:
                try:
                    found.append((key, await self.wire.within(future, deadline)))
                except kafka.errors.KafkaError as error:
                    found.append((key, error))
        return found

    async def _again(self, question: Callable[[float], Coroutine[Any, Any, T]], seconds: float) -> T:
        deadline = time.monotonic() + seconds
        await self.connected(deadline)
        while True:
            try:
                return await question(deadline)
            except kafka.errors.KafkaError as error:
                is_final = not may_pass(error) or isinstance(error, kafka.errors.UnknownTopicOrPartitionError)
                if is_final or time.monotonic() + _ANSWER_PAUSE_SECONDS >= deadline:
                    raise
            await self.wire.pause(_ANSWER_PAUSE_SECONDS)
            await self._refresh((), deadline)

    async def _ask(self, make: Callable[[], Any], seconds: float, broker: int | None = None) -> Any:
        """Ask a broker; if any will do, another one if the first does not answer within half of the time."""
        deadline = time.monotonic() + seconds
        await self.wire.connected(deadline)
        while True:
            try:
                until = min(deadline, time.monotonic() + seconds / 2)
                return await self.wire.answer(make(), self.wire.any_broker() if broker is None else broker, until)
            except kafka.errors.KafkaError as error:
                if not may_pass(error) or time.monotonic() >= deadline:
                    raise
            await self.wire.pause(_PAUSE_SECONDS)

    async def _ask_controller(self, make: Callable[[], Any], seconds: float) -> Any:
        """Ask the broker that is called the controller: a KRaft cluster names any, and that one may hang."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                cluster = await self._ask(lambda: metadata([]), deadline - time.monotonic())
                answer = await self._ask(make, (deadline - time.monotonic()) / 2, cluster.controller_id)
                (one,) = answer.topics if hasattr(answer, "topics") else answer.responses
                if one.error_code != kafka.errors.NotControllerError.errno or time.monotonic() >= deadline:
                    return answer
            except kafka.errors.KafkaError as error:
                if not may_pass(error) or time.monotonic() >= deadline:
                    raise
            await self.wire.pause(_PAUSE_SECONDS)

    async def _offsets(
        self, places: Collection[Place], at: int, committed: bool, seconds: float
    ) -> dict[Place, int | kafka.errors.KafkaError]:
        deadline = time.monotonic() + seconds
        await self.wire.connected(deadline)
        asked: set[str] = set()

        async def ask(left: list[Place], deadline: float) -> dict[Place, int | kafka.errors.KafkaError]:
            moved = {place[0] for place in left if place[0] in asked or self.wire.leader_of(*place) is None}
            if moved:
                await self._refresh(moved, deadline)
            asked.update(topic for topic, _ in left)
            return await self._offsets_once(left, at, committed, deadline)

        found = await self.settled(places, ask, deadline)
        return {place: found[place] for place in places}

    async def _offsets_once(
        self, places: Iterable[Place], at: int, committed: bool, deadline: float
    ) -> dict[Place, int | kafka.errors.KafkaError]:
        by_leader: dict[int | None, list[Place]] = defaultdict(list)
        for place in places:
            by_leader[self.wire.leader_of(*place)].append(place)
        found: dict[Place, int | kafka.errors.KafkaError] = {
            place: kafka.errors.LeaderNotAvailableError(place[0]) for place in by_leader.pop(None, ())
        }
        requests = [
            (led, _list_offsets(led, at, committed), leader) for leader, led in by_leader.items() if leader is not None
        ]
        for led, answer in await self.gather(requests, deadline):
            if isinstance(answer, Exception):
                found.update(dict.fromkeys(led, answer))
                continue
            for topic in answer.topics:
                for each in topic.partitions:
                    found[topic.name, each.partition_index] = error_in(each, topic.name) or each.offset
        return found

    async def _refresh(self, topics: Collection[str], deadline: float) -> None:
        while True:
            try:
                return await self.wire.refresh(topics, deadline)
            except kafka.errors.KafkaError as error:
                if not may_pass(error) or time.monotonic() >= deadline:
                    raise
            await self.wire.pause(_PAUSE_SECONDS)


def is_not_known(error: Exception) -> bool:
    """Whether the broker that was asked does not know the topic, or knows another one of its name."""
    return isinstance(error, _NOT_KNOWN)


def id_text(topic_id: uuid.UUID | None) -> str:
    """A topic id as Kafka's own tools spell it; empty without one."""
    return (
        base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=") if topic_id is not None and topic_id.int else ""
    )


def id_of(text: str) -> uuid.UUID:
    """The topic id that is spelled so."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(f"{text}=="))


def error_in(answer: Any, about: str = "") -> kafka.errors.KafkaError | None:
    """The error in an answer, None without one."""
    if not answer.error_code:
        return None
    words = getattr(answer, "error_message", None) or about
    return kafka.errors.for_code(answer.error_code)(*[words] if words else [])


def _operations(numbers: Iterable[int] | None) -> frozenset[Operation]:
    return frozenset(OPERATIONS[number] for number in numbers or () if number in OPERATIONS)


def metadata(names: Collection[str] | None, *, operations: bool = False, **versions: int) -> Any:
    topic = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(
        topics=None if names is None else [topic(name=name) for name in names],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=bool(versions),
        include_topic_authorized_operations=operations,
        **versions,
    )


def _describe_configs(kind: int, names: Collection[str]) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    wanted = [resource(resource_type=kind, resource_name=name, configuration_keys=None) for name in names]
    return DescribeConfigsRequest(resources=wanted, include_synonyms=False, include_documentation=False)


def _list_offsets(places: Iterable[Place], at: int, committed: bool) -> Any:
    topic = ListOffsetsRequest.ListOffsetsTopic
    by_topic: dict[str, list[Any]] = defaultdict(list)
    for name, partition in places:
        by_topic[name].append(
            topic.ListOffsetsPartition(partition_index=partition, current_leader_epoch=-1, timestamp=at)
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[topic(name=name, partitions=partitions) for name, partitions in by_topic.items()],
    )
