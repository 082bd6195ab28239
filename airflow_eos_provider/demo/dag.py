"""One run of the upgrade DAG, started, read and answered by REST as a person would do it in the UI."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from airflow_eos_provider.demo.screen import Screen
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.lab.airflow_rest import AirflowRest, AirflowRestError, LogCursor, LogLine, TaskInstance

#: Lines of these loggers are this package's own; the rest of a task's log is Airflow's.
_OWN_LOGGER = "airflow_eos_provider"

#: A plan is on the screen for this long before it is approved. It could be approved at once, but then the operator
#: takes twice as long to be sure of the answer (see ``operators/approval.py``).
READING_SECONDS = 8.0

#: Each look is four questions or more, which take Airflow's api-server some 40 ms of CPU each.
_POLL_SECONDS = 2.0
_LATEST_CHARACTERS = 90
_QUIET_STATES = frozenset({None, "scheduled", "queued"})


class DagRunFailedError(EosError):
    """The upgrade DAG did not succeed."""


class DagRun:
    """A run of a DAG that asks for approvals.

    :param rest: Airflow's API.
    :param task_done: called once for each task that has reached its final state, with its id and state.
    """

    def __init__(
        self,
        rest: AirflowRest,
        dag_id: str,
        screen: Screen,
        task_done: Callable[[str, str], None] = lambda task, state: None,
    ) -> None:
        self.rest = rest
        self.dag_id = dag_id
        self.run_id = ""
        self._screen = screen
        self._task_done = task_done
        self._cursors: dict[tuple[str, int], LogCursor] = {}
        self._states: dict[str, str | None] = {}
        self._latest = ""
        self._asked_at: dict[str, float] = {}
        self._answered: list[str] = []

    def start(self, conf: dict[str, Any]) -> str:
        """Unpause the DAG and trigger it.

        :returns: the run's id.
        """
        self.rest.unpause(self.dag_id)
        self.run_id = self.rest.trigger(self.dag_id, conf)
        return self.run_id

    def follow(self, deadline_seconds: float) -> None:
        """Show the run's progress and answer each of its questions with Approve until it has ended.

        :raises DagRunFailedError: it failed, or it did not end in time.
        """
        deadline = time.monotonic() + deadline_seconds
        while True:
            state = self.rest.run_state(self.dag_id, self.run_id)  # asked first, so that the last log is read after it
            self._show_tasks()
            self._answer()
            if state == "success":
                return
            if state == "failed":
                raise DagRunFailedError(f"The run {self.run_id} of {self.dag_id} failed. {self._failed_tasks()}")
            if time.monotonic() > deadline:
                raise DagRunFailedError(
                    f"The run {self.run_id} of {self.dag_id} has not ended after {deadline_seconds:.0f} s; "
                    f"its tasks: {self._states}."
                )
            time.sleep(_POLL_SECONDS)

    def result(self, task_id: str) -> Any:
        """What a task returned."""
        return self.rest.xcom(self.dag_id, self.run_id, task_id)

    @property
    def approvals(self) -> tuple[str, ...]:
        """The tasks whose questions were answered here."""
        return tuple(dict.fromkeys(self._answered))

    def _show_tasks(self) -> None:
        tasks = sorted(self.rest.task_instances(self.dag_id, self.run_id), key=lambda task: task.task_id)
        active = []
        for task in tasks:
            known = self._states.get(task.task_id)
            if task.state not in _QUIET_STATES and not (task.is_final and known == task.state):
                self._show_log(task)
            if task.state != known:
                self._states[task.task_id] = task.state
                self._show_state(task)
            if task.state is not None and not task.is_final:
                active.append(f"{task.task_id} is {task.state}")
        self._screen.now(f"Airflow: {', '.join(active) or 'between two tasks'}{self._latest}")

    def _show_state(self, task: TaskInstance) -> None:
        if task.state in ("success", "skipped"):
            self._screen.say(f"Airflow: task {task.task_id}: {task.state}", "green")
        elif task.state in ("failed", "upstream_failed"):
            self._screen.say(f"Airflow: task {task.task_id}: {task.state}", "bold red")
        elif task.state == "up_for_retry":
            self._screen.say(f"Airflow: task {task.task_id} is tried once more (so far: {task.try_number})", "yellow")
        if task.is_final:
            self._latest = ""
            self._task_done(task.task_id, str(task.state))

    def _show_log(self, task: TaskInstance) -> None:
        if task.try_number == 0:
            return
        key = (task.task_id, task.try_number)
        cursor = self._cursors.setdefault(key, LogCursor(self.dag_id, self.run_id, *key))
        for line in self.rest.new_log_lines(cursor):
            if not _is_worth_showing(line):
                continue
            parts = line.text.splitlines()
            # Of a plan only its head: it is shown as a whole where it is asked for.
            for part in parts[:1] if line.level == "info" else parts:
                self._screen.say(f"  {task.task_id}: {part}", "" if line.level == "info" else "yellow")
                self._latest = f": {_shortened(part)}"

    def _answer(self) -> None:
        for action in self.rest.required_actions(self.dag_id, self.run_id):
            if action.task_id not in self._asked_at:
                self._asked_at[action.task_id] = time.monotonic()
                self._screen.document(f"Required action: {action.subject}", action.body)
            if time.monotonic() - self._asked_at[action.task_id] < READING_SECONDS:
                self._screen.now(f"time to read the plan before {action.task_id} is answered")
                continue
            try:
                self.rest.answer(self.dag_id, self.run_id, action, "Approve")
            except AirflowRestError as error:
                if error.status == 409:  # answered meanwhile, by a person in the UI
                    continue
                raise
            self._answered.append(action.task_id)
            self._screen.say(f"answered by REST, as a person would in the UI: {action.task_id} → Approve", "bold cyan")

    def _failed_tasks(self) -> str:
        failed = [task for task, state in self._states.items() if state == "failed"]
        return f"Failed: {', '.join(failed) or 'none of its tasks'}; their log lines are above."


def _is_worth_showing(line: LogLine) -> bool:
    if line.text.startswith(("::group::", "::endgroup::")):
        return False
    return _OWN_LOGGER in line.logger or line.level in ("error", "critical")


def _shortened(text: str) -> str:
    return text if len(text) <= _LATEST_CHARACTERS else f"{text[: _LATEST_CHARACTERS - 1]}…"
