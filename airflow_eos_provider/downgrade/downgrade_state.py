"""The state of a group before or during a downgrade to an older Kafka Connect. Changes nothing."""

from __future__ import annotations

import time

from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.mode_evidence import probe
from airflow_eos_provider.connect.topics.config_topic import read_cluster_state
from airflow_eos_provider.connect.topics.internal_topics import CONFIGS, OFFSETS, OWN_TOPIC, read_worker_files
from airflow_eos_provider.downgrade.older import DowngradeLook, SeenWorker
from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.offsets.seen.copies import Copies, all_copies
from airflow_eos_provider.offsets.seen.group_offsets import read_group_offsets
from airflow_eos_provider.offsets.stores import OffsetStores
from airflow_eos_provider.rollout.plan.obstacles import kafka_version

#: Limit of one worker's answers, seconds.
_ANSWER_SECONDS = 30.0


def look_before(
    session: ConnectSession,
    to_version: str,
    *,
    config_topic: str = "",
    offsets_topic: str = "",
) -> DowngradeLook:
    if kafka_version(to_version) is None:
        raise ConfigurationError(f"--to-version {to_version} is not understood.", expected="for example 3.2.3")
    files = read_worker_files(session.cluster)
    workers = seen_workers(session)
    answering = [worker.worker_id for worker in workers if worker.version is not None]
    if not answering:
        raise UnreachableError("No worker of the cluster file answers.", remedy="See 'eos status'.")
    connectors = session.first_answer(lambda rest: rest.statuses(), seconds=_ANSWER_SECONDS)
    not_read: dict[str, str] = {}
    # What matters is the own topic that enabled workers use, also where none of them is enabled any more.
    stores = OffsetStores(session, files.common(OFFSETS, offsets_topic), lambda: True)
    offsets = read_group_offsets(stores, connectors, unknown=lambda name, why: not_read.update({name: why.found}))
    state = read_cluster_state(session.kafka, files.common(CONFIGS, config_topic))
    return DowngradeLook(
        session.cluster.group_id,
        to_version,
        next(one.url for one in session.cluster.workers if one.worker_id == answering[0]),
        workers,
        connectors,
        tuple(all_copies(offsets)),
        not_read,
        {name: record.count for name, record in state.task_count_records.items()},
    )


def seen_workers(session: ConnectSession) -> tuple[SeenWorker, ...]:
    """The described workers, each asked for its version and whether it runs exactly-once source connectors."""
    files = read_worker_files(session.cluster)
    seen = []
    for worker in session.cluster.workers:
        version: str | None = None
        exactly_once: bool | None = None
        try:
            with session.rest(worker.url, give_up_at=time.monotonic() + _ANSWER_SECONDS) as rest:
                version = rest.root().version
                older = SeenWorker(worker.worker_id, version, None).is_older
                exactly_once = False if older else probe(rest).runs_exactly_once
        except EosError:  # one that is being replaced
            pass
        seen.append(SeenWorker(worker.worker_id, version, exactly_once, files.properties.get(worker.worker_id)))
    return tuple(seen)


def left_behind(session: ConnectSession, offsets_topic: str = "") -> list[Copies]:
    """The connectors whose own offsets topic is older than what stands of them in the global one.

    The offsets topics are read only if a connector has an own topic by its configuration.
    """
    connectors = session.first_answer(lambda rest: rest.statuses(), seconds=_ANSWER_SECONDS)
    named = {name: status for name, status in connectors.items() if status.config.get(OWN_TOPIC)}
    if not named:
        return []
    topic = read_worker_files(session.cluster).common(OFFSETS, offsets_topic)
    offsets = read_group_offsets(OffsetStores(session, topic, lambda: True), connectors, only=named, unknown=_pass_over)
    return [one for one in all_copies(offsets) if one.is_left_behind]


def _pass_over(connector: str, error: EosError) -> None:
    """An own topic in another Kafka cluster that is not known: 'eos offsets list' says so."""
