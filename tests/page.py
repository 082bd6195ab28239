"""The page as Airflow mounts it, with Airflow's own database and auth manager, asked by users of any role."""

from __future__ import annotations

from functools import cache

from airflow.api_fastapi.app import create_auth_manager
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.configuration import AIRFLOW_HOME as HOME_OF_AIRFLOW
from airflow.utils.db import initdb
from fastapi import FastAPI
from fastapi.testclient import TestClient

from airflow_eos_provider.ui.plugin import URL_PREFIX, ExactlyOnceApp
from tests.airflow_home import AIRFLOW_HOME

#: The roles of Airflow's simple auth manager, and whether they may see connections.
ROLES = {"viewer": False, "user": False, "op": True, "admin": True}


@cache
def auth_manager() -> SimpleAuthManager:
    """Airflow's simple one; its database is there then, too."""
    assert str(AIRFLOW_HOME) == HOME_OF_AIRFLOW, f"the database in {HOME_OF_AIRFLOW} is not the tests' own"
    initdb()
    manager = create_auth_manager()
    assert isinstance(manager, SimpleAuthManager)
    manager.init()
    return manager


def token_of(role: str) -> str:
    """What a user of a role is signed in with."""
    return auth_manager().generate_jwt(SimpleAuthManagerUser(username=f"a {role}", role=role))


def client_of(role: str | None) -> TestClient:
    """A client with the token of a user of a role; of nobody for None."""
    auth_manager()
    server = FastAPI()
    server.mount(URL_PREFIX, ExactlyOnceApp())
    headers = {} if role is None else {"Authorization": f"Bearer {token_of(role)}"}
    return TestClient(server, base_url=f"http://airflow{URL_PREFIX}", headers=headers)
