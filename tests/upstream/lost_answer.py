"""An answer to a required action that comes within a second or two of the question fails the task.

The answer queues the task again before the scheduler has heard that the process which asked has ended. It then takes
that process's end for the end of the new one (``process_executor_events``), and fails a task that a person has just
approved. Here the scheduler is held up for that moment, as it is on a busy machine.
"""

from __future__ import annotations

from airflow_eos_provider.lab.servers.airflow import AirflowLab
from airflow_eos_provider.lab.servers.airflow_rest import FINAL_STATES
from tests.system.components import all_results_are_in, main_process, suspended
from tests.upstream.own_airflow import SECONDS, own_airflow, state_of
from tests.upstream.shown import StartLab
from tests.waiting import until

DAG_ID = "asks"
DAG = f"""
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG

with DAG("{DAG_ID}", schedule=None) as dag:
    ApprovalOperator(task_id="approve", subject="May it go on?", body="")
"""

#: The order within the scheduler's loop is its own, so an answer may survive: then another run is asked.
RUNS = 5

BLAMED = "state attribute is queued"


def show(start: StartLab) -> str:
    with own_airflow(start, {DAG_ID: DAG}) as airflow:
        states = []
        for _ in range(RUNS):
            states.append(_answered_at_once(airflow))
            if states[-1] == "failed":
                assert BLAMED in airflow.log("scheduler").read_text(encoding="utf-8", errors="replace")
                return f'approved by a person, the run has failed: "…{BLAMED}…"'
    raise AssertionError(f"no answer was lost: {states}")


def _answered_at_once(airflow: AirflowLab) -> str:
    """How a run ends that is approved before the scheduler has heard of the question's end."""
    with airflow.rest() as rest:
        rest.unpause(DAG_ID)
        run_id = rest.trigger(DAG_ID)
        state = state_of(airflow, DAG_ID, run_id, "approve")
        until(lambda: state() in ("running", "awaiting_input"), "the question", seconds=SECONDS, pause=0.1)
        with suspended(main_process(airflow, "scheduler")):
            until(lambda: state() == "awaiting_input", "the end of the process that asks", seconds=SECONDS)
            (action,) = rest.required_actions(DAG_ID, run_id)
            rest.answer(DAG_ID, run_id, action, "Approve")
            until(lambda: all_results_are_in(airflow), "its result", seconds=SECONDS)
        until(lambda: rest.run_state(DAG_ID, run_id) in FINAL_STATES, "the end of the run", seconds=SECONDS)
        return rest.run_state(DAG_ID, run_id)
