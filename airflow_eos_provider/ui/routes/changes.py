"""Rows of declared changes: what ``eos … list --json`` prints."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter

from airflow_eos_provider.changes.change import Change
from airflow_eos_provider.changes.declared import CHANGES
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.ui.answers import add_rows
from airflow_eos_provider.ui.documents import Table, filter_by
from airflow_eos_provider.ui.looks import Looks

#: A snapshot of fencing takes a second to see which transactions stay open.
KEPT_SECONDS = 30.0


def look_at(change: Change[Any], cluster: ConnectCluster) -> Table:
    """The snapshot of ``list``."""
    with change.session(cluster) as session:
        document = dict(change.look(session, change.request()).document)
    return Table.of(document.pop(change.rows), document)


def routes(looks: Looks) -> APIRouter:
    """A route for each change that has rows, named by the first word of its command."""
    router = APIRouter()
    for change in (each for each in CHANGES.values() if each.rows):
        path, look, filters = change.name.split()[0], partial(look_at, change), filter_by(*change.filters)
        add_rows(router, looks, path, change.name, look, Table.itself, filters, kept_seconds=KEPT_SECONDS)
    return router
