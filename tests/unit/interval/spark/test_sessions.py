"""How a session of Spark Connect waits for its server; with real ones, see tests/integration/test_spark_connect.py."""

from __future__ import annotations

from typing import Any

import grpc
from pyspark.sql.connect.client.core import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import RetryPolicy

from airflow_eos_provider.interval.spark.sessions import look_often


class Unavailable(grpc.RpcError):
    """What a client meets where no server listens."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def trailing_metadata(self) -> tuple[()]:
        return ()

    def details(self) -> str:
        return ""


class Client:
    def __init__(self) -> None:
        self._builder = DefaultChannelBuilder("sc://127.0.0.1:1")

    def set_retry_policies(self, policies: list[RetryPolicy]) -> None:
        self.policies = policies


class Session:
    __module__ = "pyspark.sql.connect.session"

    def __init__(self) -> None:
        self.client = Client()


def test_a_server_is_looked_for_every_few_seconds_for_ten_minutes() -> None:
    session: Any = Session()
    look_often(session)
    (policy,) = session.client.policies
    assert policy.can_retry(Unavailable())
    state, waits = policy.to_state(), []
    while (wait := state.next_attempt(Unavailable())) is not None:
        waits.append(wait / 1000)
    assert max(waits) <= 4
    assert 590 <= sum(waits) <= 800
    # gRPC refuses pyspark's questions between its own connections, which it makes ever more rarely.
    assert dict(session.client._builder._channel_options)["grpc.max_reconnect_backoff_ms"] == 3000
