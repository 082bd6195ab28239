"""The asset of a pipeline: it has an event for every interval that was completed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from airflow.sdk import Asset

#: Airflow takes schemes that begin with ``x-`` as they are; any other would need a normaliser of its own.
SCHEME = "x-eos"


def interval_asset(pipeline: str, group_id: str) -> Asset:
    """The asset that a pipeline's runs update; schedule DAGs on it.

    Each event's extra holds ``interval``, ``revision``, ``records``, ``digest`` and ``already``. An interval that is
    run again after its completion (a cleared task) writes nothing, yet has another event: ``already`` is true in it.

    :param pipeline: the pipeline's name.
    :param group_id: the group that it belongs to.
    """
    name = f"{group_id}/{pipeline}"
    return Asset(name=name, uri=f"{SCHEME}://{quote(group_id, safe='')}/{quote(pipeline, safe='')}", group="intervals")


def completed_intervals(triggering_asset_events: Mapping[Any, Any]) -> list[dict[str, Any]]:
    """The extras of the events that started a DAG run, in the order of their intervals, each interval once.

    :param triggering_asset_events: ``context["triggering_asset_events"]``.
    """
    found = {}
    for events in triggering_asset_events.values():
        for event in events:
            extra = dict(event.extra or {})
            if "interval" in extra:
                found[(extra["interval"], extra.get("revision", 1))] = extra
    return [found[key] for key in sorted(found)]
