"""Asks each worker about each connector: to validate its configuration, and which topics it has written.

A worker validates a configuration by the connector's plugin, which may query its source system. A few requests run in
parallel; a late answer counts as unknown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

from airflow_eos_provider.connect.connect_session import ANSWER_SECONDS, ConnectSession
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.mode_evidence import SUPPORT_PROPERTY
from airflow_eos_provider.connect.properties import references
from airflow_eos_provider.connect.rest import ConnectorStatus
from airflow_eos_provider.connect.topics.internal_topics import OWN_TOPIC
from airflow_eos_provider.errors import ConnectRestError, EosError, UnreachableError
from airflow_eos_provider.preflight.group_facts import WorkerAnswer

#: So many requests are under way to each worker, and in all; each worker has one at least.
_PER_WORKER, _AT_ONCE = 4, 16

#: Words of a worker that does not have a plugin (``Plugins.newConnector``).
_NO_PLUGIN = "Failed to find any class that implements Connector"

#: An offsets topic of its own, with which a worker looks at a connector's overrides as it does in ``enabled``.
_OWN_TOPIC_ASKED = "eos-preflight"

#: By what a worker says to these, a plugin answers; it quotes no value there.
_ANSWERED = frozenset({SUPPORT_PROPERTY, "transaction.boundary"})

_LEFT_OUT = "refused; its message is left out, since a config provider supplies the value"

Progress = Callable[[int, int], None]

#: By connector the workers' answers, the topics that it has written, and why those are not known.
Answers = tuple[tuple[WorkerAnswer, ...], tuple[str, ...], str]


def asked(config: Mapping[str, str], mode: Mode) -> dict[str, str]:
    """The configuration that a worker is asked to validate.

    It is asked as it would answer in the mode ``enabled``: whether the plugin delivers exactly once is asked only
    where that is required, and the overrides of consumer and admin client are looked at only where there is an offsets
    topic of its own.
    """
    if not mode.runs_exactly_once_tasks:
        return dict(config)
    return {OWN_TOPIC: _OWN_TOPIC_ASKED, **config, SUPPORT_PROPERTY: "required"}


def ask_workers(
    session: ConnectSession, connectors: Sequence[ConnectorStatus], mode: Mode, give_up_at: float, progress: Progress
) -> dict[str, Answers]:
    """By connector the workers' answers, the topics that it has written, and why those are not known.

    Each worker has threads of its own: one that does not answer keeps no other from being asked.
    """
    described = session.cluster.workers
    threads = max(1, min(_PER_WORKER, _AT_ONCE // len(described)))
    with ExitStack() as stack:
        pools = [stack.enter_context(_pool(threads)) for _ in described]
        workers = [
            _Worker(session, one.url, one.worker_id, give_up_at, pool)
            for one, pool in zip(described, pools, strict=True)
        ]
        # These first: a validation may take long, and they do not.
        topics = {}
        for number, status in enumerate(connectors):
            turn = number % len(workers)
            topics[status.name] = pools[turn].submit(_topics, [*workers[turn:], *workers[:turn]], status)
        validations = {
            status.name: [pool.submit(one.validate, status, mode) for pool, one in zip(pools, workers, strict=True)]
            for status in connectors
        }
        questions: list[Future[Any]] = [*topics.values(), *chain(*validations.values())]
        for done, _ in enumerate(as_completed(questions), start=1):
            progress(done, len(questions))
        return {
            name: (tuple(future.result() for future in futures), *topics[name].result())
            for name, futures in validations.items()
        }


@contextmanager
def _pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Threads; what they have not begun when the block is left, as by Ctrl-C, is dropped."""
    pool = ThreadPoolExecutor(threads)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class _Worker:
    """One worker that is asked, until it does not even say who it is.

    :param give_up_at: when it is asked no further, by the monotonic clock.
    :param pool: its threads; the first thing that they ask is who it is.
    """

    def __init__(
        self, session: ConnectSession, url: str, worker_id: str, give_up_at: float, pool: ThreadPoolExecutor
    ) -> None:
        self._session, self._url, self._give_up_at = session, url, give_up_at
        self.worker_id = worker_id
        self._silence = ""
        self._greeting = pool.submit(self._greet)

    @property
    def problem(self) -> str:
        """Why it is not asked further; empty while it is."""
        self._greeting.result()
        return self._silence or ("it was not asked in time" if time.monotonic() >= self._give_up_at else "")

    def _greet(self) -> None:
        """Ask it who it is: that needs no other thread of it, so that one that is healthy answers at once."""
        limit = min(self._give_up_at, time.monotonic() + ANSWER_SECONDS)
        try:
            with self._session.rest(self._url, give_up_at=limit) as rest:
                rest.root()
        except EosError as error:
            self._silence = error.found

    def validate(self, status: ConnectorStatus, mode: Mode) -> WorkerAnswer:
        if problem := self.problem:
            return WorkerAnswer(self.worker_id, problem=problem)
        config = dict(status.config) if status.type == "sink" else asked(status.config, mode)
        try:
            with self._session.rest(self._url, give_up_at=self._give_up_at) as rest:
                said = rest.validate(status.config.get("connector.class") or "", config)
        except ConnectRestError as error:
            return WorkerAnswer(self.worker_id, problem=error.found, has_plugin=_NO_PLUGIN not in error.found)
        except EosError as error:
            self._greet()  # the connector's source may be slow, or the worker be gone
            return WorkerAnswer(self.worker_id, problem=error.found)
        return WorkerAnswer(self.worker_id, _shown(said.errors, config), said.properties)

    def topics(self, connector: str) -> tuple[str, ...]:
        if problem := self.problem:
            raise UnreachableError(problem)
        with self._session.rest(self._url, give_up_at=self._give_up_at) as rest:
            return rest.topics(connector)


def _shown(errors: Mapping[str, tuple[str, ...]], config: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """A worker's messages without its words about values that config providers supply.

    It validates what the references stand for, and may quote that: nobody here knows it as a secret.
    """
    supplied = {name for name, value in config.items() if any(references(value or ""))} - _ANSWERED
    return {name: (_LEFT_OUT,) if name in supplied else texts for name, texts in errors.items()}


def _topics(workers: Iterable[_Worker], status: ConnectorStatus) -> tuple[tuple[str, ...], str]:
    """The topics that a connector has written, by the first of these workers that says it; or why none does."""
    if status.type == "sink":
        return (), ""
    why = ""
    for worker in workers:
        try:
            return worker.topics(status.name), ""
        except ConnectRestError as error:
            why = "the workers do not track topics (topic.tracking.enable)" if error.status == 403 else error.found
        except EosError as error:
            why = why or error.found
    return (), why
