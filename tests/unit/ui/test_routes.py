"""Who gets what: every route of the application has a rule, whoever may not see connections gets nothing."""

from __future__ import annotations

import pytest
from fastapi.routing import APIRoute

from airflow_eos_provider.ui.access import may_see_connections
from airflow_eos_provider.ui.app import STATIC, create_app
from tests.page import ROLES, client_of, token_of

#: One address of each kind, and some that lead nowhere.
PLACES = (
    "/",
    "/icon.svg",
    "/static/icon.svg",
    "/static/nothing.js",
    "/api/clusters",
    "/api/clusters/prod",
    "/docs",
    "/redoc",
    "/openapi.json",
    "/nothing/at/all",
)


def test_every_route_asks_who_may_see_connections() -> None:
    routes = create_app().routes
    assert len(routes) > 5
    for route in routes:
        assert isinstance(route, APIRoute), f"{route} is no route with dependencies"
        rules = [each.call for each in route.dependant.dependencies]
        assert may_see_connections in rules, f"{route.path} has no rule"
        assert route.methods == {"GET"}, f"{route.path} does more than read"


@pytest.mark.parametrize("place", PLACES)
def test_nobody_gets_anything(place: str) -> None:
    answer = client_of(None).get(place)
    assert answer.status_code == 401
    assert answer.json() == {"detail": "Not authenticated"}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("role", [role for role, sees in ROLES.items() if not sees])
def test_a_role_that_may_not_see_connections_gets_nothing(role: str, place: str) -> None:
    answer = client_of(role).get(place)
    assert answer.status_code == 403
    assert answer.json() == {"detail": "Forbidden"}


@pytest.mark.parametrize("role", [role for role, sees in ROLES.items() if sees])
def test_a_role_that_may_see_connections_gets_the_page(role: str) -> None:
    client = client_of(role)
    assert client.get("/api/clusters").json()["items"] == []
    assert client.get("/icon.svg").headers["content-type"] == "image/svg+xml"
    assert client.get("/static/icon.svg").text == client.get("/icon.svg").text
    assert client.get("/openapi.json").status_code == 404


def test_a_token_that_is_none_is_refused() -> None:
    client = client_of(None)
    for token in ("", "x", "eyJhbGciOiJub25lIn0.e30."):
        assert client.get("/api/clusters", headers={"Authorization": f"Bearer {token}"}).status_code in (401, 403)


def test_a_session_of_airflows_pages_is_enough() -> None:
    client = client_of(None)
    client.cookies.set("_token", token_of("admin"))
    assert client.get("/api/clusters").status_code == 200


@pytest.mark.parametrize("role", [None, "viewer", "admin"])
@pytest.mark.parametrize("place", ["/icon.svg", "/api/clusters", "/nothing"])
def test_every_answer_binds_the_browser(role: str | None, place: str) -> None:
    headers = client_of(role).get(place).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'self'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "private, no-cache"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_is_written(method: str) -> None:
    assert client_of("admin").request(method, "/api/clusters").status_code == 405


@pytest.mark.parametrize("path", ["../app.py", "..%2Fapp.py", "%2e%2e/app.py", "/etc/passwd", "%2Fetc%2Fpasswd", "."])
def test_no_file_of_another_folder_is_served(path: str) -> None:
    assert (STATIC / "../app.py").is_file()
    assert client_of("admin").get(f"/static/{path}").status_code == 404
