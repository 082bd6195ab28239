"""The facets of this package. Their fields are public, because lineage backends store them."""

from __future__ import annotations

import attrs
from openlineage.client.facet_v2 import RunFacet

#: Names of the facets in an event's run.
INTERVAL_FACET = "eos_interval"
ROLL_FACET = "eos_roll"


@attrs.define
class IntervalFacet(RunFacet):
    """One interval, complete.

    :param interval_run: its name, ``<pipeline>@<start>/<end>``.
    :param group_id: the group of its pipeline.
    :param records: records of the interval; None where it was written as a part of a wider one.
    :param digest: order-free digest of them; likewise.
    :param slices: transactions that it was written in; likewise.
    :param already: whether it had been complete before the task.
    :param ledger_topic: the topic whose record says that it is complete.
    :param ledger_key: that record's key.
    """

    interval_run: str
    group_id: str
    records: int | None
    digest: str | None
    slices: int | None
    already: bool
    ledger_topic: str
    ledger_key: str


@attrs.define
class RollFacet(RunFacet):
    """One roll of a Connect cluster.

    :param group_id: the workers' group.
    :param rollout_id: its id in the journal; empty where there was nothing to do.
    :param plan_hash: of the plan that was applied.
    :param from_mode: what the workers ran in.
    :param to_mode: what they run in now.
    :param workers: how many were rolled.
    :param task_downtime_seconds: for how long tasks were unassigned, summed over the workers.
    """

    group_id: str
    rollout_id: str
    plan_hash: str
    from_mode: str
    to_mode: str
    workers: int
    task_downtime_seconds: float
