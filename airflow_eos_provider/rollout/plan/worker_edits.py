"""The worker properties that a roll sets: the mode, and how a worker that is not enabled reads source offsets.

A worker reads its offsets topic ``read_committed`` only when it is enabled (``KafkaOffsetBackingStore``; 4.3.1). In
preparing or disabled it treats the offsets of an aborted or open transaction as progress, and never reads the records
between the last commit and those offsets: they are lost, not duplicated. This happens when such a worker takes over a
task from an enabled one, during a downgrade and in the mixed phase of an upgrade.

The consumer is made from the worker's own properties, so ``isolation.level=read_committed`` there closes the gap
(``consumer.isolation.level`` does not; that is for sinks). The worker reads the config topic with it, too, which is
right: an enabled leader writes it in transactions. So every roll to a mode below enabled sets that property, in the
plan's diff and under its hash.

The setting is temporary. The edit that makes a worker enabled restores the former value, which needs no restart of its
own and is safe: for an enabled worker Connect forces the same value on the offsets and the config topic, and the
workers that still wait for their turn keep theirs. After a downgrade the setting stays, because uncommitted offsets
remain in the offsets topic until compaction removes them. A roll never changes a setting of the worker's owner; the
journal shows whose it is (``temporary_isolation.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.rollout.hosts.host import HostFacts
from airflow_eos_provider.rollout.observe.observation import Observation

#: How the worker's own consumers (offsets, config and status topic) read.
ISOLATION_PROPERTY = "isolation.level"
READ_COMMITTED = "read_committed"


@dataclass(frozen=True, slots=True)
class Former:
    """What a property was before a roll set it for the way.

    :param value: None if it was not set.
    """

    value: str | None


def properties_to_set(facts: HostFacts, target: Mode, temporary: Former | None = None) -> dict[str, str | None]:
    """What has to change in a worker's configuration so that it joins in ``target`` and loses nothing; may be empty."""
    properties: dict[str, str | None] = {} if facts.declared.mode is target else {MODE_PROPERTY: str(target)}
    if not target.runs_exactly_once_tasks:
        if not reads_offsets_committed(facts):
            properties[ISOLATION_PROPERTY] = READ_COMMITTED
    elif temporary is not None and properties:  # never the only reason to touch a worker: it does no harm
        properties[ISOLATION_PROPERTY] = temporary.value
    return properties


def reads_offsets_committed(facts: HostFacts) -> bool:
    """Whether a worker started with these settings ignores offsets that were never committed, whatever its mode."""
    return facts.properties.get(ISOLATION_PROPERTY, "").lower() == READ_COMMITTED


def uncommitted_readers(observation: Observation) -> list[str]:
    """Running workers below enabled whose configuration takes offsets that were never committed for progress."""
    return [
        worker.worker_id
        for worker in observation.workers
        if worker.mode.verdict.mode in (Mode.PREPARING, Mode.DISABLED) and not reads_offsets_committed(worker.facts)
    ]


def not_ready_for_enabled(observation: Observation) -> list[str]:
    """Those of them that must be changed before a first worker is enabled.

    None where a worker is enabled already, since going on ends that soonest; and none where a worker is alone, since no
    other could leave it a task.
    """
    running = observation.not_stopped
    if {worker.mode.verdict.mode for worker in running} != {Mode.PREPARING} or len(running) == 1:
        return []
    return uncommitted_readers(observation)
