"""A roll of a managed service is refused before anything is asked; what is possible there is said."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.cluster.worker import WorkerDescription
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.rollout.plan import obstacles
from airflow_eos_provider.rollout.planner import Planner
from airflow_eos_provider.rollout.roll_settings import RolloutSettings

URL = "https://kafkaconnect.eu-west-1.amazonaws.com"
#: Nothing listens there, so whoever asks the brokers first fails otherwise.
CLUSTER = {"bootstrap_servers": "127.0.0.1:1", "group_id": "g", "workers": [{"url": URL}]}


def test_a_plan_is_refused_without_a_look() -> None:
    with Planner(ConnectCluster.from_mapping(CLUSTER)) as planner, pytest.raises(RefusedError) as refused:
        planner.plan()
    assert refused.value.exit_code == 3
    assert "Amazon MSK Connect, which cannot be rolled from here" in refused.value.found
    assert "with the same offset.storage.topic" in str(refused.value.remedy)


def test_the_preflight_has_that_one_answer() -> None:
    with Planner(ConnectCluster.from_mapping(CLUSTER)) as planner:
        (answer,) = planner.preflight(Mode.PREPARING).checks
    assert (answer.subject, answer.verdict) == ("own workers", Verdict.FAIL)


def test_one_worker_of_a_service_among_others_is_found(cluster: Any) -> None:
    assert obstacles.check(cluster.observe(), Mode.PREPARING, RolloutSettings()).passed
    cluster.worker("w2:8083", worker=WorkerDescription(URL))
    found = obstacles.check(cluster.observe(), Mode.PREPARING, RolloutSettings()).findings
    assert ("own workers", Verdict.FAIL) in {(finding.subject, finding.verdict) for finding in found}
