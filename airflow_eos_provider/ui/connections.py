"""The connections that the page lists: from Airflow's database and from the API server's environment.

Secrets backends cannot list their connections; open such a connection by its address.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass

from airflow.models.connection import Connection
from airflow.utils.session import create_session
from sqlalchemy import select

#: The connections of Connect clusters, and all of whose brokers intervals may be written to.
CLUSTER_TYPES = ("kafka_connect",)
KAFKA_TYPES = ("kafka_connect", "kafka")

_VARIABLE = "AIRFLOW_CONN_"


@dataclass(frozen=True, slots=True, order=True)
class Known:
    """A connection, without what is secret in it."""

    connection_id: str
    conn_type: str
    description: str = ""
    team: str | None = None


def known_connections(types: Collection[str]) -> list[Known]:
    """The connections of these types, by id."""
    with create_session() as session:
        rows = session.execute(
            select(Connection.conn_id, Connection.conn_type, Connection.description, Connection.team_name).where(
                Connection.conn_type.in_(types)
            )
        ).all()
    found = {row[0]: Known(row[0], row[1], row[2] or "", row[3]) for row in rows}
    by_variable = {connection_id.upper() for connection_id in found}
    for name, value in os.environ.items():
        connection_id = name.removeprefix(_VARIABLE)
        if name.startswith(_VARIABLE) and connection_id not in by_variable:
            conn_type = _type_of(value)
            if conn_type in types:
                found[connection_id.lower()] = Known(connection_id.lower(), conn_type)
    return sorted(found.values())


def _type_of(value: str) -> str:
    """The type of a connection in a variable, JSON or URI; empty if it is neither."""
    try:
        connection = Connection.from_json(value) if value.lstrip().startswith("{") else Connection(uri=value)
    except Exception:  # reported where the connection is used
        return ""
    return str(connection.conn_type or "")
