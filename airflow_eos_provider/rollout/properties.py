"""The worker properties that a roll sets: the mode, and how a worker that is not enabled reads source offsets.

A worker reads its offsets topic ``read_committed`` only when it is enabled (``KafkaOffsetBackingStore``; 4.3.1). In
preparing or disabled it takes the offsets of a transaction that was aborted, or is still open, for progress, and what
stands between the last commit and those offsets is never read again: lost, not duplicated. That bites whenever such a
worker takes a task over from an enabled one, on the way down and in the mixed phase of the way up.

The consumer is made from the worker's own properties, so ``isolation.level=read_committed`` there closes the gap
(``consumer.isolation.level`` does not; that is for sinks). The config topic is read with it too, which is right as
well: an enabled leader writes it in transactions. So every roll to a mode below enabled carries that property along, in
the plan's diff and under its hash. It stays when the worker is enabled later, where Connect forces the same value.
"""

from __future__ import annotations

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.rollout.hosts.process import HostFacts

#: How the worker's own consumers (offsets, config and status topic) read.
ISOLATION_PROPERTY = "isolation.level"
READ_COMMITTED = "read_committed"


def properties_to_set(facts: HostFacts, target: Mode) -> dict[str, str]:
    """What has to change in a worker's file so that it joins in ``target`` and loses nothing; empty if nothing has to.

    :param facts: the worker's file as it is now. A mode that a config provider supplies counts as what it supplies.
    """
    properties = {} if facts.declared.mode is target else {MODE_PROPERTY: str(target)}
    if not target.runs_exactly_once_tasks and not reads_offsets_committed(facts):
        properties[ISOLATION_PROPERTY] = READ_COMMITTED
    return properties


def reads_offsets_committed(facts: HostFacts) -> bool:
    """Whether a worker started with this file ignores offsets that were never committed, whatever its mode."""
    return facts.properties.get(ISOLATION_PROPERTY, "").strip().lower() == READ_COMMITTED
