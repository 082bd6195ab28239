"""One Kafka cluster during one command: its clients are kept, its topics followed, and all closed at the end.

For a single request, pass :class:`KafkaSettings`; for several, pass a :class:`Session`. A function that takes ``kafka``
takes either, by :func:`session_of`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, cast

from airflow_eos_provider.kafka.borrowed_clients import Lent
from airflow_eos_provider.kafka.questions import CONNECT_SECONDS
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

if TYPE_CHECKING:
    from airflow_eos_provider.kafka.admin.client import Admin
    from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
    from airflow_eos_provider.kafka.clients import AssignedConsumer

T = TypeVar("T")

#: Limit of one question about transactions, seconds.
ANSWER_SECONDS = 15.0


class Session:
    """The clients of one Kafka cluster and what was read of its topics; a context manager, safe for several threads.

    Clients are made when they are first needed, and lent to one borrower at a time, see :class:`Lent`. A session that
    nobody closes is closed when it is collected.
    """

    def __init__(self, settings: KafkaSettings, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self.settings = settings
        self._answer_seconds = answer_seconds
        self._lock = threading.Lock()
        self._clients: dict[object, Lent[Any]] = {}
        self._followers: dict[object, object] = {}
        self._finalizer = weakref.finalize(self, _close_all, self._clients)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every client; one that is borrowed is closed when it comes back."""
        with self._lock:
            self._finalizer()

    @property
    def clients_made(self) -> int:
        """How many clients were made so far."""
        return sum(lent.made for lent in list(self._clients.values()))

    def admin(self) -> AbstractContextManager[Admin]:
        """An admin client."""
        return self.transactions()

    def cluster_id(self) -> str:
        """The id of the Kafka cluster."""
        with self.admin() as admin:
            return admin.cluster(CONNECT_SECONDS).id

    @contextmanager
    def consumer(self, **properties: object) -> Iterator[AssignedConsumer]:
        """A consumer for ``assign``, without an assignment.

        :param properties: librdkafka's, with underscores for dots.
        """

        key = ("consumer", *sorted(properties.items()))
        make = partial(_consumer, self.settings, properties)
        with self.lent(key, make, lambda consumer: consumer.client.close()).lend() as consumer:
            consumer.client_errors.clear()
            yield consumer
            consumer.client.unassign()

    def transactions(self) -> AbstractContextManager[TransactionsClient]:
        """The same, for questions about transactions. Errors as in :class:`TransactionsClient`."""
        make = partial(_transactions_client, self.settings, self._answer_seconds)
        return self.lent("admin", make, lambda client: client.close()).lend()

    def lent(self, key: object, make: Callable[[], T], close: Callable[[T], object]) -> Lent[T]:
        """The kept clients of one kind.

        :param make: makes one. It must not refer to this session, which would then never be collected.
        """
        with self._lock:
            if key not in self._clients:
                self._clients[key] = Lent(make, close)
                if not self._finalizer.alive:
                    self._clients[key].close()  # whoever comes late is served, and nothing is kept
            return cast("Lent[T]", self._clients[key])

    def follower(self, make: Callable[[str], T], topic: str) -> T:
        """The one follower of its kind on this topic, which goes on where it stood."""
        with self._lock:
            key = (make, topic)
            if key not in self._followers:
                self._followers[key] = make(topic)
            return cast(T, self._followers[key])


class WireSession(Session):
    """A session that reads topics without librdkafka."""


#: A Kafka cluster: its settings for one question, or a session for many.
Kafka: TypeAlias = KafkaSettings | Session


@contextmanager
def session_of(kafka: Kafka) -> Iterator[Session]:
    """The session itself, or one that is closed at the end of the ``with`` block."""
    if isinstance(kafka, Session):
        yield kafka
    else:
        with Session(kafka) as session:
            yield session


def settings_of(kafka: Kafka) -> KafkaSettings:
    """The settings of a Kafka cluster, however it is given."""
    return kafka.settings if isinstance(kafka, Session) else kafka


def _consumer(settings: KafkaSettings, properties: Mapping[str, object]) -> AssignedConsumer:
    # Spark's executors have no librdkafka.
    from airflow_eos_provider.kafka.clients import assigned_consumer

    return assigned_consumer(settings, properties)


def _transactions_client(settings: KafkaSettings, answer_seconds: float) -> TransactionsClient:
    # kafka-python takes a while to import.
    from airflow_eos_provider.kafka.admin.transactions import TransactionsClient

    return TransactionsClient(settings, timeout_seconds=answer_seconds)


def _close_all(clients: dict[object, Lent[Any]]) -> None:
    for lent in clients.values():
        lent.close()
