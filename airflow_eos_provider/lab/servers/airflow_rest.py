"""Airflow's REST API, used like a person's browser: unpause, trigger, read the log, answer required actions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any

import httpx

from airflow_eos_provider.errors import EosError, UnreachableError

#: Pauses between two attempts of a read that got no answer, seconds.
_RETRY_PAUSE_SECONDS = 0.5

_LOG_END_LINES = 15

#: States of a task that waits for a person without a process; ``deferred`` where a trigger watches as well.
_PARKED = ("awaiting_input", "deferred")

#: States of a DAG run, or of a task instance, after which nothing more happens.
FINAL_STATES = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})


class AirflowRestError(EosError):
    """Airflow answered with an error.

    :ivar status: the HTTP status code.
    """

    exit_code = 6

    def __init__(self, found: str, *, status: int = 0, expected: str | None = None, remedy: str | None = None) -> None:
        super().__init__(found, expected=expected, remedy=remedy)
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

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES


@dataclass(frozen=True, slots=True)
class RequiredAction:
    """A question to a person, as the page "Required Actions" shows it.

    :param body: the text, markdown.
    :param options: what may be answered.
    """

    task_id: str
    map_index: int
    subject: str
    body: str
    options: tuple[str, ...]
    response_received: bool


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a task's log.

    :param logger: name of the logger; an operator's own lines have its module's name in it.
    """

    timestamp: datetime
    level: str
    logger: str
    text: str


@dataclass(slots=True)
class LogCursor:
    """How far the log of one task instance has been read; see :meth:`AirflowRest.new_log_lines`."""

    dag_id: str
    run_id: str
    task_id: str
    try_number: int
    lines_read: int = 0


@dataclass(slots=True)
class AirflowRest:
    """A client of one Airflow, for use as a context manager.

    :param url: address of the api-server, without a path.
    :param timeout_seconds: limit of one request.
    :param retry_seconds: how long a *read* is repeated when it gets no answer; a write is never repeated.
    """

    url: str
    username: str
    password: str = field(repr=False)
    timeout_seconds: float = 60.0
    retry_seconds: float = 60.0
    _client: httpx.Client = field(init=False, repr=False)
    _token: str = field(init=False, repr=False, default="")

    def __post_init__(self) -> None:
        # trust_env=False: the lab is on this machine, and no proxy of the environment may come between.
        self._client = httpx.Client(base_url=self.url, timeout=self.timeout_seconds, trust_env=False)

    def __enter__(self) -> AirflowRest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def health(self) -> dict[str, Any]:
        """``GET /api/v2/monitor/health``: one entry per component, asked once and without a token.

        :raises UnreachableError: nothing answers.
        """
        return self._json(self._once("GET", "/api/v2/monitor/health", authorised=False))

    def execution_health(self) -> dict[str, Any]:
        """``GET /execution/health``: whether tasks are answered, asked once and without a token.

        Airflow 3.3.2 makes this part of the api-server at the first call, which takes it five to ten seconds of CPU and
        holds up every other call; a task's process whose first five calls are each given up meanwhile costs a try.

        :raises UnreachableError: nothing answers.
        """
        return self._json(self._once("GET", "/execution/health", authorised=False))

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
        self._write(
            "PATCH", f"/api/v2/dags/{dag_id}", params={"update_mask": "is_paused"}, content={"is_paused": False}
        )

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Start a run, as the button in the UI does.

        :returns: the run's id.
        """
        answer = self._write(
            "POST", f"/api/v2/dags/{dag_id}/dagRuns", content={"logical_date": None, "conf": dict(conf or {})}
        )
        return str(answer["dag_run_id"])

    def clear(self, dag_id: str, run_id: str) -> None:
        """Clear every task of a run, so that all are done once more."""
        content = {"dry_run": False, "dag_run_id": run_id, "only_failed": False, "reset_dag_runs": True}
        self._write("POST", f"/api/v2/dags/{dag_id}/clearTaskInstances", content=content)

    def run_state(self, dag_id: str, run_id: str) -> str:
        return str(self._read(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def has_succeeded(self, dag_id: str, run_id: str) -> bool:
        """Whether a run has ended well.

        :raises EosError: it has ended otherwise; with the end of the log of each task that failed.
        """
        state = self.run_state(dag_id, run_id)
        if state in FINAL_STATES - {"success"}:
            failed = [task for task in self.task_instances(dag_id, run_id) if task.state == "failed"]
            logs = [f"\nThe end of the log of {task.task_id}:\n{self.log_end(dag_id, run_id, task)}" for task in failed]
            raise EosError(f"The run {run_id} of {dag_id} ended as {state}.{''.join(logs)}")
        return state == "success"

    def task_instances(self, dag_id: str, run_id: str) -> tuple[TaskInstance, ...]:
        answer = self._read(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances", limit=100)
        return tuple(
            TaskInstance(entry["task_id"], entry["state"], int(entry["try_number"] or 0))
            for entry in answer["task_instances"]
        )

    def new_log_lines(self, cursor: LogCursor) -> list[LogLine]:
        """The lines that a task wrote since the last call with this cursor; none while there is no log yet."""
        path = f"/api/v2/dags/{cursor.dag_id}/dagRuns/{cursor.run_id}/taskInstances/{cursor.task_id}/logs"
        try:
            answer = self._read(f"{path}/{cursor.try_number}", map_index=-1)
        except AirflowRestError as error:
            if error.status == 404:
                return []
            raise
        lines = _log_lines(answer["content"])
        new = lines[cursor.lines_read :]
        cursor.lines_read = max(cursor.lines_read, len(lines))
        return new

    def log_end(self, dag_id: str, run_id: str, task: TaskInstance) -> str:
        """The last lines of the log of a task's current try."""
        lines = self.new_log_lines(LogCursor(dag_id, run_id, task.task_id, task.try_number))
        return "\n".join(line.text for line in lines[-_LOG_END_LINES:])

    def required_actions(self, dag_id: str, run_id: str, *, open_only: bool = True) -> tuple[RequiredAction, ...]:
        """The questions of a run that wait for a person (all of them without ``open_only``).

        A question can be seen a moment before its task is parked. Airflow 3.3.2 strands a task that is answered while
        it is being parked: ``update_hitl_detail`` waits for the row's lock and then goes by the state that it had read
        before. So a question whose task is not parked yet does not wait for anybody.
        """
        parameters: dict[str, Any] = {"response_received": False} if open_only else {}
        answer = self._read(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/hitlDetails", **parameters)
        return tuple(
            RequiredAction(
                task_id=entry["task_instance"]["task_id"],
                map_index=int(entry["task_instance"]["map_index"]),
                subject=entry["subject"],
                body=entry["body"] or "",
                options=tuple(entry["options"]),
                response_received=bool(entry["response_received"]),
            )
            for entry in answer["hitl_details"]
            if not open_only or entry["task_instance"]["state"] in _PARKED
        )

    def answer(
        self, dag_id: str, run_id: str, action: RequiredAction, option: str, params: Mapping[str, Any] | None = None
    ) -> None:
        """Answer a required action with one of its options.

        :raises AirflowRestError: it was answered already (409), or the task asks nothing (404).
        """
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{action.task_id}/{action.map_index}/hitlDetails"
        self._write("PATCH", path, content={"chosen_options": [option], "params_input": dict(params or {})})

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
        answer = self._write(
            "POST",
            "/api/v2/backfills",
            content={
                "dag_id": dag_id,
                "from_date": from_date.isoformat(),
                "to_date": to_date.isoformat(),
                "run_backwards": backwards,
                "max_active_runs": max_active_runs,
                "reprocess_behavior": "failed",
                "dag_run_conf": {},
            },
        )
        return int(answer["id"])

    def run_states(self, dag_id: str) -> dict[str, str]:
        """State by run id of a DAG's runs, oldest first (the first 500)."""
        answer = self._read(f"/api/v2/dags/{dag_id}/dagRuns", order_by="start_date", limit=500)
        return {entry["dag_run_id"]: entry["state"] for entry in answer["dag_runs"]}

    def _read(self, path: str, **parameters: Any) -> dict[str, Any]:
        deadline = time.monotonic() + self.retry_seconds
        while True:
            try:
                return self._json(self._once("GET", path, params=parameters))
            except (UnreachableError, AirflowRestError) as error:
                busy = not isinstance(error, AirflowRestError) or error.status >= 500
                if not busy or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_PAUSE_SECONDS)

    def _write(
        self, method: str, path: str, *, content: Mapping[str, Any], params: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        return self._json(self._once(method, path, params=params, content=content))

    def _once(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        content: Mapping[str, Any] | None = None,
        authorised: bool = True,
    ) -> httpx.Response:
        response = self._send(method, path, params, content, self._bearer() if authorised else {})
        if response.status_code == 401 and authorised:  # the token has run out
            self._token = ""
            response = self._send(method, path, params, content, self._bearer())
        if response.status_code >= 400:
            raise AirflowRestError(
                f"Airflow answered {method} {path} with {response.status_code}: {_detail(response)}",
                status=response.status_code,
            )
        return response

    def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        content: Mapping[str, Any] | None,
        headers: dict[str, str],
    ) -> httpx.Response:
        try:
            return self._client.request(
                method, path, params=params, json=content, headers={"Accept": "application/json", **headers}
            )
        except httpx.TransportError as error:
            raise UnreachableError(
                f"Airflow's API at {self.url} does not answer {method} {path} ({type(error).__name__}: {error})."
            ) from error

    def _bearer(self) -> dict[str, str]:
        if not self._token:
            # No error of this request may carry its body, which is the password.
            response = self._send(
                "POST", "/auth/token", None, {"username": self.username, "password": self.password}, {}
            )
            if response.status_code != 201:
                raise AirflowRestError(
                    f"Airflow gave the user {self.username} no token ({response.status_code}).",
                    status=response.status_code,
                )
            self._token = response.json()["access_token"]
        return {"Authorization": f"Bearer {self._token}"}

    @staticmethod
    def _json(response: httpx.Response) -> dict[str, Any]:
        document = response.json()
        if not isinstance(document, dict):
            raise AirflowRestError(f"Airflow answered {response.request.url.path} with no JSON object.")
        return document


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
        if not isinstance(entry, Mapping) or entry.get("timestamp") is None:
            continue
        text = str(entry.get("event", ""))
        for error in entry.get("error_detail") or []:
            text += f"\n{error.get('exc_type')}: {error.get('exc_value')}"
        lines.append(
            LogLine(
                timestamp=datetime.fromisoformat(entry["timestamp"]),
                level=str(entry.get("level", "info")).lower(),
                logger=str(entry.get("logger", "")),
                text=text,
            )
        )
    return lines
