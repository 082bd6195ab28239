"""Users who may read connections may see the page.

Airflow does not guard the routes of a plugin's application. So the application has one dependency for all routes, and
``tests/unit/ui/test_routes.py`` checks it on each.
"""

from __future__ import annotations

from collections.abc import Collection

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import requires_access_connection
from fastapi import Depends

#: 401 for whoever is not signed in; 403 for whoever may not see connections, or not the one that the path names as
#: ``connection_id``.
may_see_connections = requires_access_connection("GET")

REQUIRED = Depends(may_see_connections)


def visible_to(user: BaseUser, connections: Collection[tuple[str, str | None]]) -> set[str]:
    """The ids of the connections that a user may see."""
    manager, seen = get_auth_manager(), set[str]()
    for team in {team for _, team in connections}:
        ids = {connection_id for connection_id, its in connections if its == team}
        seen |= manager.filter_authorized_connections(conn_ids=ids, user=user, method="GET", team_name=team)
    return seen
