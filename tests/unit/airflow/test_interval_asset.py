"""The asset's address: what it may be, and what lineage has of it."""

from __future__ import annotations

from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from airflow.providers_manager import ProvidersManager

from airflow_eos_provider.assets.intervals import (
    completed_intervals,
    convert_asset_to_openlineage,
    create_asset,
    interval_asset,
    sanitize_uri,
)


def test_group_and_pipeline_come_back_whatever_is_in_their_names() -> None:
    asset = interval_asset("orders/daily #1", "etl@eu:1")
    dataset = convert_asset_to_openlineage(asset, None)
    assert (dataset.namespace, dataset.name) == ("x-eos://etl@eu:1", "orders/daily #1")
    assert create_asset(group_id="etl@eu:1", pipeline="orders/daily #1").uri == asset.uri


@pytest.mark.parametrize(
    "uri",
    [
        "x-eos://etl",
        "x-eos://etl/",
        "x-eos:///orders",
        "x-eos://etl/orders/daily",
        "x-eos://ada:s3cret@etl/orders",
        "x-eos://etl:9092/orders",
        "x-eos://etl/orders?x=1",
        "x-eos://etl/orders#1",
        "kafka://etl/orders",
    ],
)
def test_an_address_of_another_form_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="does not name a pipeline") as raised:
        sanitize_uri(urlsplit(uri))
    assert "s3cret" not in str(raised.value)


def test_airflow_knows_the_scheme() -> None:
    manager = ProvidersManager()
    assert manager.asset_uri_handlers["x-eos"] is sanitize_uri
    assert manager.asset_factories["x-eos"] is create_asset
    assert manager.asset_to_openlineage_converters["x-eos"] is convert_asset_to_openlineage


def test_an_interval_of_two_pipelines_is_two_events_sorted_by_interval() -> None:
    def extra(pipeline: str, day: int) -> dict[str, str]:
        return {"pipeline": pipeline, "interval": f"2013-01-0{day}T00:00:00Z/2013-01-0{day + 1}T00:00:00Z"}

    events = {
        interval_asset(name, "etl"): [SimpleNamespace(extra=extra(name, day)) for day in (2, 1, 1)]
        for name in ("orders", "clicks")
    }
    wanted = [extra(name, day) for day in (1, 2) for name in ("clicks", "orders")]
    assert completed_intervals(events) == wanted
