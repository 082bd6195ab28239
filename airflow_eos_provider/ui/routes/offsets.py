"""Source offsets as tasks read them: what ``eos offsets list --json`` prints, without secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from fastapi import APIRouter, Response

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.offsets.seen.group import SeenOffset
from airflow_eos_provider.offsets.seen.look import OffsetsLook
from airflow_eos_provider.ui.answers import NO_ITEMS, answer, see_cluster
from airflow_eos_provider.ui.documents import Listing, PagingDep, Table, redacted
from airflow_eos_provider.ui.looks import Looks, Problem

#: A snapshot reads whole topics.
KEPT_SECONDS = 30.0


def look_at_offsets(cluster: ConnectCluster) -> Listing:
    """Read every known offsets topic of a group."""
    unknown: dict[str, EosError] = {}
    with ConnectSession(cluster) as session:
        found = OffsetsLook(session).now(unknown=unknown.__setitem__)
        seen: Iterator[SeenOffset] = chain(chain.from_iterable(map(found.of, found.known())), found.leftovers())
        table = Table.of(map(_row, seen))
    not_read = [{"connector": name, **Problem.of(error).to_dict()} for name, error in unknown.items()]
    return Listing(table, redacted({"not_read": not_read}))


def routes(looks: Looks) -> APIRouter:
    """The route of source offsets."""
    router = APIRouter()

    @router.get("/api/clusters/{connection_id}/offsets")
    async def offsets(connection_id: str, paging: PagingDep, connector: str = "", leftovers: bool = False) -> Response:
        seen = await see_cluster(looks, connection_id, "offsets", look_at_offsets, kept_seconds=KEPT_SECONDS)

        def keep(item: Mapping[str, Any]) -> bool:
            return item["leftover"] == leftovers and connector in ("", item["connector"])

        return await answer(seen, lambda found: found.page(paging, keep), NO_ITEMS)

    return router


def _row(seen: SeenOffset) -> dict[str, Any]:
    """An offset. Its key is rebuilt from the redacted partition, whose secrets have names."""
    document = seen.to_dict()
    if document["partition"] is not None:
        document["key"] = json.dumps([document["connector"], redacted(document["partition"])], separators=(",", ":"))
    return document
