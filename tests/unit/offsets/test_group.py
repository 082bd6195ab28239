"""The offsets of a group, where a connector's own topic is not known or cannot be read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.connect.rest import ConnectorStatus
from airflow_eos_provider.connect.topics.source_offsets import OffsetLog, offset_key
from airflow_eos_provider.errors import EosError, UnreachableError
from airflow_eos_provider.kafka.admin.partition_writers import Outcome, Written
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.read.reader import LogRecord
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.offsets import stores as stores_module
from airflow_eos_provider.offsets.seen import backup
from airflow_eos_provider.offsets.seen.group_offsets import GroupOffsets, read_group_offsets
from airflow_eos_provider.offsets.stores import Store

HERE = Session(KafkaSettings.of("here:9092"))


def read(
    *, own: Store | EosError | None, readable: bool = True, exists: bool = True
) -> tuple[GroupOffsets, dict[str, str]]:
    """Of a connector ``c`` whose offset is in the global topic; and of which one is not known why."""

    def own_of(connector: str, config: Any) -> Store | None:
        if isinstance(own, EosError):
            raise own
        return own

    def read_topic(store: Store, *, headers: bool) -> Any:
        if store.topic == "own" and not readable:
            raise UnreachableError("no broker answers")
        log = OffsetLog(store.name)
        if store.topic == "global":
            log.take([LogRecord("global", 0, 0, 0, offset_key("c", {}), b"{}")])
        written = Written(1, 0, Outcome.COMMITTED)
        return SimpleNamespace(
            name=store.name, id=None, ends={0: 1}, committed=log.committed(), waiting={}, written=lambda record: written
        )

    noted: dict[str, str] = {}
    stores: Any = SimpleNamespace(own=own_of, read=read_topic, global_store=Store("global", HERE))
    connector: Any = SimpleNamespace(type="source", config={})
    connectors: dict[str, ConnectorStatus] = {"c": connector} if exists else {}
    found = read_group_offsets(stores, connectors, unknown=lambda name, why: noted.update({name: why.found}))
    return found, noted


@pytest.mark.parametrize(
    ("own", "readable"), [(UnreachableError("no broker answers"), True), (Store("own", HERE, "there"), False)]
)
def test_what_is_not_known_is_noted_and_the_global_topic_is_not_called_read(
    own: Store | EosError, readable: bool
) -> None:
    found, noted = read(own=own, readable=readable)
    assert [seen.offset.is_read for seen in found.of("c")] == [False]
    assert noted == {"c": "no broker answers"}
    assert backup.take(found, "here", "g", 0.0).without == ("c",)


def test_a_topic_of_the_workers_own_cluster_that_cannot_be_read_ends_the_look() -> None:
    with pytest.raises(UnreachableError, match="no broker answers"):
        read(own=Store("own", HERE), readable=False)


def test_what_a_deleted_connector_has_left_is_said_to_be_that() -> None:
    found, _ = read(own=None)
    assert [seen.to_dict()["leftover"] for seen in found.of("c")] == [False]
    assert not list(found.leftovers())
    found, _ = read(own=None, exists=False)
    assert [seen.to_dict()["leftover"] for seen in found.leftovers()] == [True]


def test_a_read_of_a_store_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores_module, "read_offsets_topic", lambda *_, progress, **__: progress(1, 2))
    said: list[tuple[str, int, int]] = []
    session: Any = SimpleNamespace(kafka=HERE, on_read=lambda *at: said.append(at))
    stores_module.OffsetStores(session, "global").read(Store("own", HERE, "there"))
    assert said == [(Store("own", HERE, "there").name, 1, 2)]
