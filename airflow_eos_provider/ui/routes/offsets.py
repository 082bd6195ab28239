"""Source offsets as tasks read them: what ``eos offsets list --json`` prints, without secrets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from fastapi import APIRouter

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.offsets.seen.current_offsets import OffsetsLook
from airflow_eos_provider.offsets.seen.group_offsets import SeenOffset
from airflow_eos_provider.ui.answers import add_rows, not_known
from airflow_eos_provider.ui.documents import Item, Table, keep_where, redacted
from airflow_eos_provider.ui.looks import Looks

#: A snapshot reads whole topics.
KEPT_SECONDS = 30.0


def look_at_offsets(cluster: ConnectCluster) -> Table:
    """Read every known offsets topic of a group."""
    unknown: dict[str, EosError] = {}
    with ConnectSession(cluster) as session:
        found = OffsetsLook(session).now(unknown=unknown.__setitem__)
        seen: Iterator[SeenOffset] = chain(chain.from_iterable(map(found.of, found.known())), found.leftovers())
        table = Table.of(map(_row, seen))
    return replace(table, head={"not_read": redacted(not_known(unknown))})


def routes(looks: Looks) -> APIRouter:
    """The route of source offsets."""
    router = APIRouter()
    add_rows(router, looks, "offsets", "offsets", look_at_offsets, Table.itself, _filters, kept_seconds=KEPT_SECONDS)
    return router


def _filters(query: Mapping[str, str]) -> Callable[[Item], bool]:
    leftover, of_connector = query.get("leftovers") == "true", keep_where(connector=query.get("connector", ""))
    return lambda item: item["leftover"] is leftover and of_connector(item)


def _row(seen: SeenOffset) -> dict[str, Any]:
    """An offset. Its key is rebuilt from the redacted partition, whose secrets have names."""
    document = seen.to_dict()
    if document["partition"] is not None:
        document["key"] = json.dumps([document["connector"], redacted(document["partition"])], separators=(",", ":"))
    return document
