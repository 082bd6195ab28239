"""The demo's upgrade: one run of the upgrade DAG, triggered and approved through Airflow's REST API."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.lab.servers.airflow_rest import AirflowRest, AirflowRestError

DAG_ID = "connect_exactly_once_upgrade"
CONNECTION_ID = "kafka_connect_default"

DAG_FILE = '''\
"""The upgrade of the demo's cluster. Airflow finds DAGs by the words dag and airflow in a file."""

from __future__ import annotations

from airflow_eos_provider.dag_factories.upgrade import upgrade_dag

dag = upgrade_dag()
'''

_DEADLINE_SECONDS = 1800.0
_POLL_SECONDS = 1.0

#: Airflow 3.3 loses an answer that comes before it has heard that the process which asked has ended, and the operator
#: then needs 8 s more to be sure of it (see ``operators/approval.py``). The demo's Airflow hears it within a second.
_ANSWER_AFTER_SECONDS = 3.0


class UpgradeFailedError(EosError):
    """The upgrade DAG did not succeed."""


@dataclass(slots=True)
class Upgrade:
    """What the run has done so far.

    :param rolls: the reports of the rolls to preparing and to enabled, as their tasks returned them.
    :param approvals: the tasks whose questions were answered.
    """

    run_id: str = ""
    rolls: list[dict[str, Any]] = field(default_factory=list)
    approvals: list[str] = field(default_factory=list)

    @property
    def enabled_at_ms(self) -> int | None:
        """When every worker was proven enabled, broker time; None if they never were."""
        rolled = [roll for roll in self.rolls if roll.get("to") == Mode.ENABLED]
        return int(rolled[-1]["finished_at_ms"]) if rolled else None

    def run(self, rest: AirflowRest, say: Callable[[str], None]) -> None:
        """Trigger the DAG, approve its plans, and wait for its end.

        :param say: receives each plan's question and each roll's result.
        :raises UpgradeFailedError: the run failed, or did not end in time.
        """
        rest.unpause(DAG_ID)
        self.run_id = rest.trigger(DAG_ID, {"reason": "eos demo"})
        deadline = time.monotonic() + _DEADLINE_SECONDS
        asked_at: dict[str, float] = {}
        try:
            while (state := rest.run_state(DAG_ID, self.run_id)) != "success":
                if state == "failed" or time.monotonic() > deadline:
                    raise UpgradeFailedError(f"The run {self.run_id} of {DAG_ID} is {state}.{_failures(rest, self)}")
                self._approve(rest, asked_at, say)
                time.sleep(_POLL_SECONDS)
        finally:  # a run that failed reports what it has done, too
            for mode in (Mode.PREPARING, Mode.ENABLED):
                with contextlib.suppress(EosError):
                    self.rolls.append(rest.xcom(DAG_ID, self.run_id, f"roll_{mode}"))

    def _approve(self, rest: AirflowRest, asked_at: dict[str, float], say: Callable[[str], None]) -> None:
        for action in rest.required_actions(DAG_ID, self.run_id):
            if time.monotonic() - asked_at.setdefault(action.task_id, time.monotonic()) < _ANSWER_AFTER_SECONDS:
                continue
            try:
                rest.answer(DAG_ID, self.run_id, action, "Approve")
            except AirflowRestError as error:
                if error.status == 409:  # answered meanwhile, by a person on Airflow's page
                    continue
                raise
            self.approvals.append(action.task_id)
            say(f"approved: {action.subject}")


def _failures(rest: AirflowRest, upgrade: Upgrade) -> str:
    """The ends of the logs of the tasks that failed."""
    text = ""
    for task in rest.task_instances(DAG_ID, upgrade.run_id):
        if task.state == "failed":
            text += f" The end of the log of {task.task_id}:\n{rest.log_end(DAG_ID, upgrade.run_id, task)}"
    return text
