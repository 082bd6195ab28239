"""Which host a described worker gets."""

from __future__ import annotations

import pytest

from airflow_eos_provider.connect.cluster import HOST_KINDS, WorkerDescription
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.rollout.hosts.choose import KINDS, host_of
from airflow_eos_provider.rollout.hosts.process.host import ProcessHost


def test_each_kind_that_a_description_may_name_has_a_host() -> None:
    assert set(KINDS) == set(HOST_KINDS)
    assert isinstance(host_of(WorkerDescription("http://w1:8083")), ProcessHost)


def test_another_kind_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="w1:8083 has a host of kind 'barrel'") as refused:
        host_of(WorkerDescription("http://w1:8083", host="barrel"))
    assert refused.value.expected == "one of process"
