"""The demo's upgrade: one run of the upgrade DAG, triggered and approved through Airflow's REST API."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.lab.servers.airflow_rest import AirflowRest
from airflow_eos_provider.lab.waiting import until

DAG_ID = "connect_exactly_once_upgrade"
CONNECTION_ID = "kafka_connect_default"

DAG_FILE = '''\
"""The upgrade of the demo's cluster. Airflow finds DAGs by the words dag and airflow in a file."""

from airflow_eos_provider.dag_factories.upgrade import upgrade_dag

dag = upgrade_dag()
'''

_DEADLINE_SECONDS = 1800.0
_POLL_SECONDS = 1.0

#: Airflow 3.3 loses an answer that comes before it has heard that the process which asked has ended, and the operator
#: then needs 8 s more to be sure of it (see ``operators/approval.py``). The demo's Airflow hears it within a second.
_ANSWER_AFTER_SECONDS = 3.0


@dataclass(slots=True)
class Upgrade:
    """What the run has done so far: the reports of its rolls, and the tasks whose questions were answered."""

    run_id: str = ""
    rolls: list[dict[str, Any]] = field(default_factory=list)
    approvals: list[str] = field(default_factory=list)

    @property
    def enabled_at_ms(self) -> int | None:
        """When every worker was proven enabled, broker time; None if they never were."""
        rolled = [roll for roll in self.rolls if roll.get("to") == Mode.ENABLED]
        return int(rolled[-1]["finished_at_ms"]) if rolled else None

    def run(self, rest: AirflowRest) -> None:
        """Trigger the DAG, approve its plans, and wait for its end."""
        rest.unpause(DAG_ID)
        self.run_id = rest.trigger(DAG_ID, {"reason": "eos demo"})
        asked_at: dict[str, float] = {}

        def succeeded() -> bool:
            for action in rest.required_actions(DAG_ID, self.run_id):
                if time.monotonic() - asked_at.setdefault(action.task_id, time.monotonic()) > _ANSWER_AFTER_SECONDS:
                    rest.answer(DAG_ID, self.run_id, action, "Approve")
                    self.approvals.append(action.task_id)
            return rest.has_succeeded(DAG_ID, self.run_id)

        until(succeeded, f"the end of {DAG_ID}", _DEADLINE_SECONDS, pause_seconds=_POLL_SECONDS)
        self.rolls += [rest.xcom(DAG_ID, self.run_id, f"roll_{mode}") for mode in (Mode.PREPARING, Mode.ENABLED)]
