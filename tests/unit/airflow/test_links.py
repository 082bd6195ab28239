"""Links from tasks: to the page, to Connect's REST API, to Spark's own page."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import BaseOperator, BaseOperatorLink

from airflow_eos_provider.dag_factories import fence_dag, interval_run_dag, upgrade_dag
from airflow_eos_provider.get_provider_info import get_provider_info
from airflow_eos_provider.links.operator_links import (
    ClusterPageLink,
    ConnectRestLink,
    IntervalPageLink,
    RollPageLink,
    show,
    show_rest,
)
from airflow_eos_provider.links.page import PAGE_PATH, cluster_url, interval_url, roll_url, shown_url
from airflow_eos_provider.ui.plugin import ExactlyOncePlugin

RUN = "orders@2026-01-01T05:00:00Z/2026-01-02T05:00:00Z"


@pytest.fixture(autouse=True)
def base_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/team/")


def test_the_page_is_where_its_plugin_has_it() -> None:
    (view,) = ExactlyOncePlugin.external_views
    assert f"/plugin/{view['url_route']}" == PAGE_PATH


def test_each_part_of_an_address_is_encoded() -> None:
    base = "https://airflow.example/team/plugin/exactly-once#"
    assert cluster_url("kafka_connect_default") == f"{base}/clusters/kafka_connect_default"
    assert roll_url("a/b", "r1#2") == f"{base}/clusters/a%2Fb/rolls/r1%232"
    run = "orders%402026-01-01T05%3A00%3A00Z%2F2026-01-02T05%3A00%3A00Z"
    assert interval_url("kafka", "g", "orders", RUN) == f"{base}/intervals/kafka/g/orders/{run}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://connect-1:8083", "http://connect-1:8083"),
        ("https://ada:s3cret@connect-1:8083/base?token=x#y", "https://connect-1:8083/base"),
        ("http://[::1]:4040/", "http://[::1]:4040/"),
        ("javascript:alert(1)", ""),
        ("http://host:port", ""),
        ("//host", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_only_addresses_of_http_without_a_login_are_shown(url: str | None, shown: str) -> None:
    assert shown_url(url) == shown


def operator() -> Any:
    return BaseOperator(task_id="t")


def test_a_link_is_kept_while_the_task_runs_and_told_at_its_end() -> None:
    kept: dict[str, str] = {}
    context: Any = {"ti": SimpleNamespace(xcom_push=lambda key, value: kept.update({key: value}))}
    task, link = operator(), RollPageLink()
    assert link.get_link(task, ti_key=None) == ""  # type: ignore[arg-type]
    show(task, context, link, "https://a")
    show(task, context, link, "")  # nothing takes its place
    assert kept == {link.xcom_key: "https://a"}
    assert link.get_link(task, ti_key=None) == "https://a"  # type: ignore[arg-type]


def test_a_link_that_cannot_be_kept_fails_nothing() -> None:
    task = operator()
    cluster = SimpleNamespace(workers=[SimpleNamespace(url="http://u:p@w1:8083")])
    show_rest(task, {"ti": SimpleNamespace()}, cluster)  # type: ignore[typeddict-item]
    assert ConnectRestLink().get_link(task, ti_key=None) == "http://w1:8083"  # type: ignore[arg-type]
    show_rest(task, {}, "no cluster")  # type: ignore[typeddict-item]


def test_every_link_is_registered_and_every_dag_of_a_cluster_has_links() -> None:
    registered = set()
    for path in get_provider_info()["extra-links"]:
        module, _, name = path.rpartition(".")
        registered.add(getattr(importlib.import_module(module), name))
    assert all(issubclass(link, BaseOperatorLink) for link in registered)
    used = set()
    for dag in (
        upgrade_dag(dag_id="links_upgrade", conn_id="cluster_7"),
        fence_dag(dag_id="links_fence", conn_id="cluster_7"),
        interval_run_dag(pipeline="p", python_callable="module:function", dag_id="links_intervals"),
    ):
        links = [link for task in dag.tasks for link in task.operator_extra_links if type(link) in registered]
        assert links, dag.dag_id
        used |= {type(link) for link in links}
    assert used == registered
    (plan,) = [task for task in fence_dag(dag_id="links", conn_id="cluster_7").tasks if task.task_id == "plan"]
    assert ClusterPageLink().get_link(plan, ti_key=None).endswith("/clusters/cluster_7")  # type: ignore[arg-type]
    assert IntervalPageLink().xcom_key == "_link_IntervalPageLink", "XComs of finished tasks are found by it"
