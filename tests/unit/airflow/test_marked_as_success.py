"""An approval that was marked as success has no result, which Airflow renders as None: it approves nothing.

Each DAG's task that carries a plan out is rendered by Airflow itself, and then run.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_eos_provider import operators
from airflow_eos_provider.changes.change import Plan
from airflow_eos_provider.changes.declared import CHANGES
from airflow_eos_provider.dag_factories import downgrade_dag, upgrade_dag
from airflow_eos_provider.dag_factories.changes import FACTORIES
from airflow_eos_provider.operators.approval import NOBODY_ASKED, require_approved

DAGS: dict[str, Callable[[], DAG]] = {
    "upgrade": upgrade_dag,
    "downgrade": lambda: downgrade_dag(steps=("preparing", "disabled")),
    **{change.name: FACTORIES[change.dag] for change in CHANGES.values()},
}


def carriers(dag: DAG) -> Iterator[BaseOperator]:
    """The tasks that carry an approved plan out."""
    return (task for task in dag.tasks if "approval" in task.template_fields)


@pytest.mark.parametrize("name", DAGS)
def test_a_plan_whose_approval_was_marked_as_success_is_not_carried_out(
    name: str, context: dict[str, Any], make_plan: Callable[[], Any]
) -> None:
    found = list(carriers(DAGS[name]()))
    assert found
    for task in found:
        of_change = Plan(name, "g", "c", "Do it?", ("do this",), {"this": 1}, {})
        plan = (of_change if name in CHANGES else make_plan()).to_dict()
        xcoms = {str(task.plan.operator.task_id): plan}
        context["ti"].xcom_pull = lambda task_ids, default, xcoms=xcoms, **_: xcoms.get(task_ids, default)
        task.plan = task.render_template(task.plan, context)
        task.approval = task.render_template(task.approval, context)
        assert task.plan == plan
        assert task.approval is None
        with pytest.raises(AirflowFailException, match=r"is not approved.*Marking that task as success is no approval"):
            task.execute(context)


def operator_classes() -> Iterator[type[BaseOperator]]:
    for module in pkgutil.iter_modules(operators.__path__, f"{operators.__name__}."):
        for _, found in inspect.getmembers(import_module(module.name), inspect.isclass):
            if issubclass(found, BaseOperator) and found.__module__ == module.name:
                yield found


def test_every_operator_that_takes_an_approval_is_in_a_dag_of_these() -> None:
    """A new one belongs into a DAG above, or its refusal is not tested."""
    takers = {found.__name__ for found in operator_classes() if "approval" in found.template_fields}
    takers -= {"ChangeOperator", "RightsOperator"}  # bases of those that are made from a declaration
    tested = {type(task).__name__ for make in DAGS.values() for task in carriers(make())}
    assert takers == tested


def test_only_an_operator_without_the_parameter_asks_nobody(context: dict[str, Any]) -> None:
    for found in operator_classes():
        if "approval" in found.template_fields:
            own = [inspect.signature(each.__init__).parameters for each in found.__mro__ if "__init__" in vars(each)]
            assert next(each["approval"] for each in own if "approval" in each).default is NOBODY_ASKED
    require_approved(NOBODY_ASKED, "abc")
    for none in (None, "", {}, [], "nobody is asked", SimpleNamespace(plan_hash="abc")):
        with pytest.raises(AirflowFailException, match="approved"):
            require_approved(none, "abc")
