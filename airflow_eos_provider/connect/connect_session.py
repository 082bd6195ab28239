"""One Connect cluster for the time of one command: the session of its Kafka cluster, and its workers' REST clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Self, TypeVar

from airflow_eos_provider.connect.cluster.description import ConnectCluster, RestSettings
from airflow_eos_provider.connect.cluster.other_kafka import OtherKafka
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.errors import EosError, UnreachableError
from airflow_eos_provider.kafka.borrowed_clients import Lent
from airflow_eos_provider.kafka.kafka_session import Session

T = TypeVar("T")

#: A worker or broker that has not answered a question within so many seconds is called silent. ``GET /`` asks no other
#: thread of the worker, so a healthy one answers it in milliseconds; a request that waits for its herder takes up to a
#: rebalance.
ANSWER_SECONDS = 8.0


class ConnectSession:
    """Looks at one Connect cluster again and again with the same clients; a context manager, safe for several threads.

    :ivar other_kafka: other Kafka clusters, which its connectors name.
    :ivar on_read: called while a topic is read that may be long, with its name, offsets passed and offsets in all.
    """

    def __init__(self, cluster: ConnectCluster, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self.cluster = cluster
        self.kafka = Session(cluster.kafka, answer_seconds=answer_seconds)
        self.other_kafka = OtherKafka(self.kafka, cluster.other_kafka)
        self.on_read: Callable[[str, int, int], None] = lambda topic, passed, total: None
        self._answer_seconds = answer_seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every client; one that is borrowed is closed when it comes back."""
        self.kafka.close()
        self.other_kafka.close()

    @contextmanager
    def rest(self, url: str, *, give_up_at: float, retry_seconds: float = 0.0) -> Iterator[ConnectRest]:
        """A client of one worker.

        :param give_up_at: when no request is waited for any longer, by the monotonic clock.
        :param retry_seconds: for how long a request is repeated that meets a rebalance; 0 for one attempt.
        """
        with self._clients(url).lend() as client:
            client.give_up_at, client.retry_seconds = give_up_at, retry_seconds
            yield client

    def ask(self, call: Callable[[ConnectRest], T], *, seconds: float = 60.0) -> T:
        """Ask the first worker that is up: any of them knows every connector.

        :param call: carried out again with the next worker if one dies in its midst, so it has to bear that.
        """
        problem: EosError | None = None
        for worker in self.cluster.workers:
            try:
                with self.rest(worker.url, give_up_at=time.monotonic() + ANSWER_SECONDS) as rest:
                    rest.root()  # one that is suspended takes connections and does not answer; one that starts says 404
            except EosError as error:
                problem = error
                continue
            try:
                with self.rest(worker.url, give_up_at=time.monotonic() + seconds, retry_seconds=seconds) as rest:
                    return call(rest)
            except UnreachableError as error:
                problem = error
        assert problem is not None  # a description has a worker
        raise problem

    def first_answer(self, call: Callable[[ConnectRest], T], *, seconds: float) -> T:
        """What the first worker says that answers without an error, where any of them can tell."""
        problem: EosError | None = None
        for worker in self.cluster.workers:
            try:
                with self.rest(worker.url, give_up_at=time.monotonic() + seconds) as rest:
                    return call(rest)
            except EosError as error:
                problem = error
        assert problem is not None  # a description has a worker
        raise problem

    def hang_up(self) -> None:
        """Close connections to workers that are idle, before one is stopped.

        A worker that stops waits for its clients to hang up, for up to a second (Jetty's ``shutdownIdleTimeout``).
        """
        for worker in self.cluster.workers:
            self._clients(worker.url).drop()

    def _clients(self, url: str) -> Lent[ConnectRest]:
        seconds = min(self.cluster.rest.timeout_seconds, self._answer_seconds)
        make = partial(_client, url, replace(self.cluster.rest, timeout_seconds=seconds))
        return self.kafka.lent(("worker", url), make, lambda client: client.__exit__(None, None, None))


def _client(url: str, settings: RestSettings) -> ConnectRest:
    return ConnectRest(url, settings, retry_seconds=0.0).__enter__()
