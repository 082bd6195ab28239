"""``dag.test()`` drops what a task hands over when it defers, as soon as its trigger has an event.

A scheduler adds the event to ``defer(kwargs=…)``; ``dag.test()`` puts the event in their place. So a DAG that works in
production fails in its test, or worse, resumes with defaults.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.upstream.own_airflow import said_by
from tests.upstream.shown import StartLab

DAG = """
from datetime import timedelta
from pathlib import Path
from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import DAG, BaseOperator

class Waits(BaseOperator):
    def execute(self, context):
        self.defer(trigger=TimeDeltaTrigger(timedelta(0)), method_name="resume", kwargs={"handed": "a word"})

    def resume(self, context, event=None, handed="nothing"):
        Path(__file__).with_name("handed").write_text(handed)

with DAG("waits", schedule=None) as dag:
    Waits(task_id="wait")
"""
CODE = """
from airflow.dag_processing.dagbag import DagBag
from airflow.utils.db import initdb
initdb()
print("state", DagBag().dags["waits"].test().state)
"""


def show(start: StartLab) -> str:
    with tempfile.TemporaryDirectory(prefix="eos-upstream-dag-test-") as text:
        folder = Path(text)
        (folder / "waits.py").write_text(DAG, encoding="utf-8")
        said = said_by(CODE, folder, AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{folder}/airflow.db")
        handed = folder / "handed"
        assert handed.exists(), said
        resumed_with = handed.read_text(encoding="utf-8")
    assert resumed_with == "nothing", resumed_with
    return 'defer(kwargs={"handed": "a word"}), and dag.test() resumed the task without it'
