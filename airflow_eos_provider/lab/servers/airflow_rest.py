"""Airflow's REST API, used like a person's browser: unpause, trigger, read the log, answer required actions."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx

from airflow_eos_provider.errors import EosError, UnreachableError

#: Limit of one request, seconds.
_REQUEST_SECONDS = 60.0

#: A *read* that gets no answer is repeated for so long, after such pauses, seconds; a write is never repeated.
_RETRY_SECONDS = 60.0
_RETRY_PAUSE_SECONDS = 0.5

_LOG_END_LINES = 15

#: States of a task that waits for a person without a process; ``deferred`` where a trigger watches as well.
_PARKED = ("awaiting_input", "deferred")

#: States of a DAG run, or of a task instance, after which nothing more happens.
FINAL_STATES = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})


class AirflowRestError(EosError):
    """Airflow answered with an error, of this HTTP status."""

    exit_code = 6

    def __init__(self, found: str, *, status: int = 0) -> None:
        super().__init__(found)
        self.status = status


@dataclass(frozen=True, slots=True)
class TaskInstance:
    """One task of a DAG run.

    :param state: Airflow's state, None before the scheduler has looked at it.
    :param try_number: 0 before the first try.
    """

    task_id: str
    state: str | None
    try_number: int


@dataclass(frozen=True, slots=True)
class RequiredAction:
    """A question to a person, as the page "Required Actions" shows it, with its text and what may be answered."""

    task_id: str
    map_index: int
    subject: str
    body: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a task's log; the logger of an operator's own lines has its module's name in it."""

    timestamp: datetime
    level: str
    logger: str
    text: str


class AirflowRest:
    """A client of one Airflow, for use as a context manager."""

    def __init__(self, url: str, username: str, password: str) -> None:
        self.url = url
        # trust_env=False: the lab is on this machine, and no proxy of the environment may come between.
        self._client = httpx.Client(base_url=url, timeout=_REQUEST_SECONDS, trust_env=False)
        self._login = _Login(url, username, password)

    def __enter__(self) -> AirflowRest:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def health(self) -> dict[str, Any]:
        """``GET /api/v2/monitor/health``: one entry per component, asked once and without a token."""
        return self._once("GET", "/api/v2/monitor/health", auth=None)

    def execution_health(self) -> dict[str, Any]:
        """``GET /execution/health``: whether tasks are answered, asked once and without a token.

        Airflow 3.3.2 makes this part of the api-server at the first call, which takes it five to ten seconds of CPU and
        holds up every other call; a task's process whose first five calls are each given up meanwhile costs a try.
        """
        return self._once("GET", "/execution/health", auth=None)

    def dag_is_known(self, dag_id: str) -> bool:
        """Whether the DAG processor has parsed this DAG and stored it."""
        try:
            self._read(f"/api/v2/dags/{dag_id}")
        except AirflowRestError as error:
            if error.status == 404:
                return False
            raise
        return True

    def import_errors(self) -> tuple[str, ...]:
        """What kept DAG files from being loaded, with the traceback that Airflow shows."""
        errors = self._read("/api/v2/importErrors")["import_errors"]
        return tuple(f"{entry['filename']}:\n{entry['stack_trace']}" for entry in errors)

    def unpause(self, dag_id: str) -> None:
        path = f"/api/v2/dags/{dag_id}"
        self._write("PATCH", path, params={"update_mask": "is_paused"}, content={"is_paused": False})

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Start a run, as the button in the UI does; returns its id."""
        content = {"logical_date": None, "conf": dict(conf or {})}
        return str(self._write("POST", f"/api/v2/dags/{dag_id}/dagRuns", content=content)["dag_run_id"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        return str(self._read(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def has_succeeded(self, dag_id: str, run_id: str) -> bool:
        """Whether a run has ended well.

        :raises EosError: it has ended otherwise; with the end of the log of each task that failed.
        """
        state = self.run_state(dag_id, run_id)
        if state in FINAL_STATES - {"success"}:
            logs = []
            for task in self.task_instances(dag_id, run_id):
                if task.state == "failed":
                    lines = self.log(dag_id, run_id, task.task_id, task.try_number)[-_LOG_END_LINES:]
                    logs += [f"\nThe end of the log of {task.task_id}:", *(f"\n{line.text}" for line in lines)]
            raise EosError(f"The run {run_id} of {dag_id} ended as {state}.{''.join(logs)}")
        return state == "success"

    def task_instances(self, dag_id: str, run_id: str) -> tuple[TaskInstance, ...]:
        answer = self._read(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances", limit=100)
        return tuple(
            TaskInstance(entry["task_id"], entry["state"], int(entry["try_number"] or 0))
            for entry in answer["task_instances"]
        )

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int) -> list[LogLine]:
        """The lines that a try of a task has written; none while there is no log yet."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}"
        try:
            return _log_lines(self._read(path, map_index=-1)["content"])
        except AirflowRestError as error:
            if error.status == 404:
                return []
            raise

    def required_actions(self, dag_id: str, run_id: str) -> tuple[RequiredAction, ...]:
        """The questions of a run that wait for a person.

        A question can be seen a moment before its task is parked. Airflow 3.3.2 strands a task that is answered while
        it is being parked: ``update_hitl_detail`` waits for the row's lock and then goes by the state that it had read
        before. So a question whose task is not parked yet does not wait for anybody.
        """
        answer = self._read(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/hitlDetails", response_received=False)
        return tuple(
            RequiredAction(
                task_id=entry["task_instance"]["task_id"],
                map_index=int(entry["task_instance"]["map_index"]),
                subject=entry["subject"],
                body=entry["body"] or "",
                options=tuple(entry["options"]),
            )
            for entry in answer["hitl_details"]
            if entry["task_instance"]["state"] in _PARKED
        )

    def answer(self, dag_id: str, run_id: str, action: RequiredAction, option: str) -> None:
        """Answer a required action with one of its options.

        :raises AirflowRestError: it was answered already (409), or the task asks nothing (404).
        """
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{action.task_id}/{action.map_index}/hitlDetails"
        self._write("PATCH", path, content={"chosen_options": [option], "params_input": {}})

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """What a task returned.

        :raises AirflowRestError: it returned nothing (404).
        """
        return self._read(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/{key}")["value"]

    def backfill(
        self, dag_id: str, from_date: datetime, to_date: datetime, *, max_active_runs: int = 4, backwards: bool = False
    ) -> int:
        """Ask for the runs of all intervals that begin from ``from_date`` to ``to_date``, both included.

        Poll :meth:`run_states` afterwards: the backfill's own ``completed_at`` comes late.

        :param backwards: the newest interval first.
        :returns: the backfill's id.
        """
        content = {
            "dag_id": dag_id,
            "from_date": from_date.isoformat(),
            "to_date": to_date.isoformat(),
            "run_backwards": backwards,
            "max_active_runs": max_active_runs,
            "reprocess_behavior": "failed",
            "dag_run_conf": {},
        }
        return int(self._write("POST", "/api/v2/backfills", content=content)["id"])

    def run_states(self, dag_id: str) -> dict[str, str]:
        """State by run id of a DAG's runs, oldest first (the first 500)."""
        answer = self._read(f"/api/v2/dags/{dag_id}/dagRuns", order_by="start_date", limit=500)
        return {entry["dag_run_id"]: entry["state"] for entry in answer["dag_runs"]}

    def _read(self, path: str, **parameters: Any) -> dict[str, Any]:
        deadline = time.monotonic() + _RETRY_SECONDS
        while True:
            try:
                return self._once("GET", path, params=parameters)
            except (UnreachableError, AirflowRestError) as error:
                busy = not isinstance(error, AirflowRestError) or error.status >= 500
                if not busy or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_PAUSE_SECONDS)

    def _write(
        self, method: str, path: str, *, content: Mapping[str, Any], params: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        return self._once(method, path, params=params, json=content)

    def _once(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        try:
            response = self._client.request(method, path, **{"auth": self._login, **options})
        except httpx.TransportError as error:
            raise UnreachableError(
                f"Airflow's API at {self.url} does not answer {method} {path} ({type(error).__name__}: {error})."
            ) from error
        if response.status_code >= 400:
            raise AirflowRestError(
                f"Airflow answered {method} {path} with {response.status_code}: {_detail(response)}",
                status=response.status_code,
            )
        document = response.json() if response.content else {}
        if not isinstance(document, dict):
            raise AirflowRestError(f"Airflow answered {path} with no JSON object.")
        return document


class _Login(httpx.Auth):
    """A token for the user's password, and another one when it has run out."""

    requires_response_body = True

    def __init__(self, url: str, username: str, password: str) -> None:
        self._url = f"{url}/auth/token"
        self._username = username
        self._password = password
        self._token = ""

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        for _ in range(2):
            if not self._token:
                # No error of this request may carry its body, which is the password.
                login = {"username": self._username, "password": self._password}
                answer = yield httpx.Request("POST", self._url, json=login)
                if answer.status_code != 201:
                    raise AirflowRestError(
                        f"Airflow gave the user {self._username} no token ({answer.status_code}).",
                        status=answer.status_code,
                    )
                self._token = answer.json()["access_token"]
            request.headers["Authorization"] = f"Bearer {self._token}"
            response = yield request
            if response.status_code != 401:
                return
            self._token = ""


def _detail(response: httpx.Response) -> str:
    try:
        detail = response.json().get("detail", "")
    except (ValueError, AttributeError):
        detail = response.text
    return str(detail)[:500]


def _log_lines(content: list[Any]) -> list[LogLine]:
    """The task's own lines; Airflow's note of where the log came from has no time, and is left out."""
    lines = []
    for entry in content:
        if isinstance(entry, Mapping) and entry.get("timestamp") is not None:
            errors = (f"\n{each.get('exc_type')}: {each.get('exc_value')}" for each in entry.get("error_detail") or [])
            lines.append(
                LogLine(
                    timestamp=datetime.fromisoformat(entry["timestamp"]),
                    level=str(entry.get("level", "info")).lower(),
                    logger=str(entry.get("logger", "")),
                    text="".join((str(entry.get("event", "")), *errors)),
                )
            )
    return lines
