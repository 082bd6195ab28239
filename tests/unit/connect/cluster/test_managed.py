"""Managed services are known by the host names of their REST addresses, and nothing else is taken for one."""

from __future__ import annotations

import pytest

from airflow_eos_provider.connect.cluster.managed import SERVICES, managed_service, managed_workers
from airflow_eos_provider.connect.cluster.worker import WorkerDescription

MSK, CONFLUENT, GOOGLE, AIVEN = SERVICES


@pytest.mark.parametrize(
    ("url", "service"),
    [
        ("https://kafkaconnect.eu-west-1.amazonaws.com", MSK),
        ("https://kafkaconnect.cn-north-1.amazonaws.com.cn/v1/connectors", MSK),
        ("https://api.confluent.cloud/connect/v1/environments/env-1/clusters/lkc-1", CONFLUENT),
        ("https://API.Confluent.Cloud.", CONFLUENT),
        ("https://managedkafka.googleapis.com:443", GOOGLE),
        ("http://connect-1.kc.us-central1.managedkafka.my-project.cloud.goog:8083", GOOGLE),
        ("https://kc-shop.a.aivencloud.com:443", AIVEN),
        ("http://ec2-10-0-0-1.eu-west-1.compute.amazonaws.com:8083", None),
        ("http://b-1.demo.abc.c2.kafka.eu-west-1.amazonaws.com:8083", None),
        ("http://kafkaconnect.example.org:8083", None),
        ("http://confluent.cloud.example.org:8083", None),
        ("http://notaivencloud.com:8083", None),
        ("http://connect-1:8083", None),
        ("http://[::1", None),
    ],
)
def test_a_service_is_known_by_its_host_names(url: str, service: object) -> None:
    assert managed_service(url) is service


def test_each_service_says_why_and_what_is_possible() -> None:
    workers = [WorkerDescription("http://w1:8083"), WorkerDescription("https://kc-shop.a.aivencloud.com:443")]
    assert managed_workers(workers) == {"kc-shop.a.aivencloud.com:443": AIVEN}
    assert all(each.why and each.instead for each in SERVICES)
