"""The options of ``format("kafka_eos")``; what it writes: tests/integration/test_spark_write.py."""

from __future__ import annotations

import pytest

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.spark.datasource import target_of

DAY = "2013-01-01T05:00:00Z/2013-01-02T05:00:00Z"


def test_an_option_that_cannot_be_used_is_named() -> None:
    given = {"pipeline": "daily", "interval": DAY}
    assert target_of({**given, "revision": "2"}, {"daily": {}})[1].revision == 2
    for name, value in (("pipeline", "hourly"), ("interval", "today"), ("interval", ""), ("revision", "second")):
        with pytest.raises(ConfigurationError, match=value or name):
            target_of({**given, name: value}, {"daily": {}})
