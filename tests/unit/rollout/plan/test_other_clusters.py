"""Source connectors whose clients use another Kafka cluster: which of them a roll to enabled would harm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.rollout.observe.client_clusters import ClientClusters
from airflow_eos_provider.rollout.plan.preflight import begins_exactly_once, other_clusters

HERE, THERE = "kafka-1", "kafka-2"

#: All its clients are there, and so are its offsets already.
ALL_THERE = ClientClusters(HERE, THERE, THERE, THERE, has_own_topic=True)


@pytest.mark.parametrize(
    ("clients", "evidence"),
    [
        (replace(ALL_THERE, has_own_topic=False), "find none, and start from the beginning"),
        (replace(ALL_THERE, consumer=HERE), "are not part of its transactions"),
        (replace(ALL_THERE, admin=HERE), "would be fenced in kafka-1"),
        (replace(ALL_THERE, producer=HERE, consumer=HERE), "would be fenced in kafka-2"),
        (replace(ALL_THERE, producer=HERE, admin=HERE), "read from kafka-2"),
    ],
)
def test_what_would_be_lost_is_said_with_what_to_do(clients: ClientClusters, evidence: str) -> None:
    found = other_clusters({"fine": ALL_THERE, "c": clients})
    assert found.verdict is Verdict.FAIL
    assert found.found.startswith("c: ")
    assert evidence in found.found
    assert "or stop c until that is done" in found.remedy


@pytest.mark.parametrize(
    "clients",
    [
        ALL_THERE,
        ClientClusters(HERE, HERE, HERE, HERE, has_own_topic=False),  # another name of this cluster
    ],
)
def test_what_a_roll_does_not_harm_passes(clients: ClientClusters) -> None:
    assert other_clusters({"c": clients}).passed


def test_a_cluster_that_is_not_known_pauses_and_a_known_harm_outweighs_it() -> None:
    unknown = replace(ALL_THERE, producer=HERE, problem="no broker answers", remedy="make it answer")
    found = other_clusters({"c": unknown})
    assert (found.verdict, found.found) == (Verdict.INCONCLUSIVE, "c: no broker answers")
    assert found.remedy.startswith("make it answer")
    assert other_clusters({"c": unknown, "d": replace(ALL_THERE, admin=HERE)}).verdict is Verdict.FAIL


def test_it_is_asked_when_exactly_once_begins_and_not_once_a_worker_runs_in_it(cluster: Any, cluster_in: Any) -> None:
    assert not begins_exactly_once(cluster.observe(), Mode.PREPARING)
    preparing = cluster_in(Mode.PREPARING)
    assert begins_exactly_once(preparing.observe(), Mode.ENABLED)
    preparing.roll("w2:8083", Mode.ENABLED, at=1_000_000.0)
    assert not begins_exactly_once(preparing.observe(), Mode.ENABLED)
    assert other_clusters(None).passed
