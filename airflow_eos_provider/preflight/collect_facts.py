"""Collects the facts for a preflight from the workers (by REST) and the brokers. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from airflow_eos_provider.connect.cluster.other_kafka import ClientAddresses
from airflow_eos_provider.connect.connect_session import ANSWER_SECONDS, ConnectSession
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.mode_evidence import probe
from airflow_eos_provider.connect.properties import plain_topics
from airflow_eos_provider.connect.rest import ConnectorStatus
from airflow_eos_provider.connect.topics.internal_topics import read_worker_files
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.preflight.broker_answers import broker_facts, readers_of
from airflow_eos_provider.preflight.group_facts import ConnectorFacts, Facts
from airflow_eos_provider.preflight.worker_answers import Answers, Progress, ask_workers


@dataclass(frozen=True, slots=True)
class Scope:
    """How much is looked at.

    :param names: of connectors; none for all.
    :param seconds: limit of all questions to workers together.
    :param readers: whether to ask who reads, and how fast topics grow.
    """

    names: tuple[str, ...] = ()
    seconds: float = 300.0
    readers: bool = True


#: The list of connectors is waited for through a rebalance, for so many seconds at most.
_LIST_SECONDS = 60.0


def _silent(done: int, total: int) -> None:
    """Drops progress."""


def look(session: ConnectSession, mode: Mode, scope: Scope = Scope(), progress: Progress = _silent) -> Facts:
    files = read_worker_files(session.cluster)
    give_up_at = time.monotonic() + scope.seconds
    limit = min(scope.seconds, _LIST_SECONDS)
    known = session.ask(lambda rest: {**rest.infos(), **rest.statuses()}, seconds=limit)
    chosen = _chosen(known, scope.names, session.cluster.group_id)
    partitions = Topics(session.kafka).partitions()
    answered = ask_workers(session, chosen, mode, give_up_at, progress)
    addresses = ClientAddresses(files.properties.values(), session.kafka.settings.bootstrap_servers)
    connectors = tuple(of_connector(status, answered[status.name], partitions, addresses) for status in chosen)
    facts = Facts(session.cluster.group_id, mode, connectors, files, readers=None)
    if not mode.runs_exactly_once_tasks:
        return facts
    # A sink that was not named is a reader all the same.
    unnamed = [known[name] for name in sorted(known.keys() - {status.name for status in chosen})]
    silent = tuple(ConnectorFacts(one.name, "sink", _written(one)) for one in unnamed if one.type == "sink")
    return _with_brokers(session, replace(facts, silent_sinks=silent), partitions, readers=scope.readers)


def of_connector(
    status: ConnectorStatus, answered: Answers, partitions: Collection[str], addresses: ClientAddresses
) -> ConnectorFacts:
    answers, tracked, untracked = answered
    config = _written(status)
    topics = targets(config, tracked, partitions) if status.type != "sink" else ()
    elsewhere = addresses.elsewhere(config).get("producer", "")
    return ConnectorFacts(
        name=status.name,
        type=status.type,
        config=config,
        tasks=len(status.tasks),
        running=sum(task.state != "FAILED" for task in status.tasks),
        answers=answers,
        topics=topics,
        unseen=() if elsewhere else tuple(topic for topic in topics if topic not in partitions),
        topics_unknown=untracked,
        elsewhere=elsewhere,
    )


def _written(status: ConnectorStatus) -> dict[str, str]:
    """A connector's configuration without what is null in it, which Connect takes."""
    given: Mapping[str, str | None] = status.config
    return {name: value for name, value in given.items() if value is not None}


def _with_brokers(session: ConnectSession, facts: Facts, partitions: Mapping[str, int], *, readers: bool) -> Facts:
    """The same with what the brokers say."""
    here = [one for one in facts.sources if not one.elsewhere]
    topics = {topic: partitions[topic] for one in here for topic in one.topics if topic in partitions}
    growing = {
        topic
        for one in here
        for topic in one.topics
        if one.config.get("transaction.boundary", "").lower() == "interval"
    }
    facts = replace(facts, brokers=broker_facts(session.kafka, topics, growing & topics.keys() if readers else ()))
    if not readers:
        return facts
    sinks = {one.name: one.config for one in (*facts.connectors, *facts.silent_sinks) if one.type == "sink"}
    found, unknown = readers_of(session.kafka, topics.keys(), sinks)
    if unseen := sorted({topic for one in here for topic in one.topics} - partitions.keys()):
        unknown = unknown or f"{session.kafka.settings.who} may not see {', '.join(unseen)} (Describe), or it is gone"
    return replace(facts, readers=found, readers_unknown=unknown)


def has_begun(session: ConnectSession) -> bool:
    """Whether a worker answers that it runs exactly-once source tasks."""
    for worker in session.cluster.workers:
        with suppress(EosError), session.rest(worker.url, give_up_at=time.monotonic() + ANSWER_SECONDS) as rest:
            if probe(rest).runs_exactly_once:
                return True
    return False


def targets(config: Mapping[str, str], tracked: Collection[str], existing: Collection[str]) -> tuple[str, ...]:
    """The topics that a source connector writes: those that Connect has seen, and those that it names plainly."""
    prefix = config.get("topic.prefix", "")
    begun = {topic for topic in existing if prefix and topic.startswith(prefix)}
    return tuple(sorted({*tracked, *(plain_topics(config) & set(existing)), *begun}))


def _chosen(known: Mapping[str, ConnectorStatus], names: Collection[str], group_id: str) -> list[ConnectorStatus]:
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"There is no connector {name} in the group {group_id}.",
                expected=f"one of {', '.join(sorted(known)) or 'none at all'}",
            )
    return [status for name, status in sorted(known.items()) if not names or name in names]
