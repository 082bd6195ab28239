"""The asset of a pipeline: it has an event for every interval that was completed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

from airflow.sdk import Asset

if TYPE_CHECKING:
    from airflow.providers.common.compat.openlineage.facet import Dataset

#: Airflow takes schemes that begin with ``x-`` as they are, so :func:`interval_asset` asks :func:`sanitize_uri` itself.
SCHEME = "x-eos"


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """An asset's address, checked: ``x-eos://<group>/<pipeline>``."""
    segments = uri.path.split("/")
    plain = not (uri.query or uri.fragment or "@" in uri.netloc or ":" in uri.netloc)
    if uri.scheme != SCHEME or not plain or not uri.netloc or len(segments) != 2 or not segments[1]:
        raise ValueError(
            f"{SCHEME}://{uri.netloc.rpartition('@')[2]}{uri.path} does not name a pipeline. Expected: "
            f"{SCHEME}://<group>/<pipeline>, with other characters than letters, digits, '.', '_', '-' percent-encoded"
        )
    return uri


def create_asset(*, group_id: str, pipeline: str, extra: dict[str, Any] | None = None) -> Asset:
    """The asset of a pipeline, as Airflow's asset factories are called."""
    asset = interval_asset(pipeline, group_id)
    return Asset(name=asset.name, uri=asset.uri, group=asset.group, extra=extra or {})


def convert_asset_to_openlineage(asset: Asset, lineage_context: Any) -> Dataset:
    """The asset as a dataset of OpenLineage: the group is its namespace, the pipeline its name."""
    from airflow.providers.common.compat.openlineage.facet import Dataset

    uri = sanitize_uri(urlsplit(asset.uri))
    return Dataset(namespace=f"{SCHEME}://{unquote(uri.netloc)}", name=unquote(uri.path[1:]))


def interval_asset(pipeline: str, group_id: str) -> Asset:
    """The asset that a pipeline's runs update; schedule DAGs on it.

    Each event's extra contains ``pipeline``, ``group_id``, ``interval``, ``revision``, ``records``, ``digest``,
    ``already`` and ``part_of``. A cleared task of a complete interval writes nothing, but sends another event with
    ``already`` true. If a wider interval wrote this one, ``part_of`` names that run, and ``records`` and ``digest`` are
    null.

    :param pipeline: the pipeline's name.
    :param group_id: the group that it belongs to.
    """
    uri = f"{SCHEME}://{quote(group_id, safe='')}/{quote(pipeline, safe='')}"
    return Asset(name=f"{group_id}/{pipeline}", uri=sanitize_uri(urlsplit(uri)).geturl(), group="intervals")


def completed_intervals(triggering_asset_events: Mapping[Any, Any]) -> list[dict[str, Any]]:
    """The extras of the events that started a DAG run, sorted by interval: each interval of a pipeline once.

    The extra's ``pipeline`` and ``group_id`` tell the pipelines of several assets apart.

    :param triggering_asset_events: ``context["triggering_asset_events"]``.
    """
    found = {}
    for asset, events in triggering_asset_events.items():
        for event in events:
            extra = dict(event.extra or {})
            if "interval" in extra:
                found[(extra["interval"], extra.get("revision", 1), str(getattr(asset, "uri", asset)))] = extra
    return [found[key] for key in sorted(found)]
