"""Asks each worker about each connector: to validate its configuration, and which topics it has written.

A worker that validates a configuration lets the connector's plugin do so, and that may ask the system which it reads
from. Requests go out some at a time; what is not answered in time is not known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from airflow_eos_provider.connect.internal_topics import OWN_TOPIC
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.mode_evidence import SUPPORT_PROPERTY
from airflow_eos_provider.connect.rest import ConnectorStatus
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.errors import ConnectRestError, EosError
from airflow_eos_provider.preflight.facts import WorkerAnswer

#: So many requests are under way to each worker, and in all.
_PER_WORKER, _AT_ONCE = 4, 16

#: Words of a worker that does not have a plugin (``Plugins.newConnector``).
_NO_PLUGIN = "Failed to find any class that implements Connector"

#: An offsets topic of its own, with which a worker looks at a connector's overrides as it does in ``enabled``.
_OWN_TOPIC_ASKED = "eos-preflight"

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
    """By connector the workers' answers, the topics that it has written, and why those are not known."""
    workers = session.cluster.workers
    total = len(connectors) * (len(workers) + 1)
    done = 0

    def count(_: Future[Any]) -> None:
        nonlocal done
        done += 1
        progress(done, total)

    def start(function: Callable[..., Any], *arguments: object) -> Future[Any]:
        future = pool.submit(function, *arguments)
        future.add_done_callback(count)
        return future

    with ThreadPoolExecutor(max(1, min(_AT_ONCE, _PER_WORKER * len(workers)))) as pool:
        validations = {
            status.name: [
                start(_validate, session, worker.url, worker.worker_id, status, mode, give_up_at) for worker in workers
            ]
            for status in connectors
        }
        topics = {status.name: start(_topics, session, status, give_up_at) for status in connectors}
        return {
            name: (tuple(future.result() for future in futures), *topics[name].result())
            for name, futures in validations.items()
        }


def _validate(
    session: ConnectSession, url: str, worker_id: str, status: ConnectorStatus, mode: Mode, give_up_at: float
) -> WorkerAnswer:
    plugin = status.config.get("connector.class", "")
    if time.monotonic() >= give_up_at:
        return WorkerAnswer(worker_id, problem="it was not asked in time")
    config = dict(status.config) if status.type == "sink" else asked(status.config, mode)
    try:
        with session.rest(url, give_up_at=give_up_at) as rest:
            said = rest.validate(plugin, config)
    except ConnectRestError as error:
        return WorkerAnswer(worker_id, problem=error.found, has_plugin=_NO_PLUGIN not in error.found)
    except EosError as error:
        return WorkerAnswer(worker_id, problem=error.found)
    return WorkerAnswer(worker_id, said.errors, said.properties)


def _topics(session: ConnectSession, status: ConnectorStatus, give_up_at: float) -> tuple[tuple[str, ...], str]:
    if status.type == "sink":
        return (), ""
    left = give_up_at - time.monotonic()
    if left <= 0:
        return (), "no worker was asked in time"
    try:
        return session.first_answer(lambda rest: rest.topics(status.name), seconds=left), ""
    except ConnectRestError as error:
        why = "the workers do not track topics (topic.tracking.enable)" if error.status == 403 else error.found
        return (), why
    except EosError as error:
        return (), error.found
