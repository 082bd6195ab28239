"""Plans in the journal, also of earlier versions: all can be shown, but only plans of this version can be applied.

A plan's hash covers all of its fields, so a plan with fewer fields keeps its recorded hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.rollout.plan.order import predictions
from airflow_eos_provider.rollout.plan.plan import SCHEMA, ChangeKind, Plan, WorkerChange

#: Plans from this schema on have all that a later one shows; what was added since has a default.
EARLIEST_SCHEMA = 2


def is_followed(document: Mapping[str, Any]) -> bool:
    """Whether what such a plan did to each worker's file is understood."""
    schema = document.get("schema")
    return isinstance(schema, int) and EARLIEST_SCHEMA <= schema <= SCHEMA


def is_applicable(document: Mapping[str, Any]) -> bool:
    """Whether such a plan can be carried on by this version."""
    return document.get("schema") == SCHEMA


def plan_on_record(document: Mapping[str, Any]) -> Plan:
    """The plan of a rollout.

    :raises ConfigurationError: it is not understood: a newer schema, or content that does not match its own hash.
    """
    if is_applicable(document) or not is_followed(document):
        return Plan.from_dict(document)
    names = {each.name for each in fields(WorkerChange)}
    try:
        return Plan(
            group_id=document["group_id"],
            kafka_cluster_id=document["kafka_cluster_id"],
            target=Mode(document["target"]),
            workers=tuple(
                WorkerChange(**{**{n: v for n, v in change.items() if n in names}, "kind": ChangeKind[change["kind"]]})
                for change in document["workers"]
            ),
            task_downtime=predictions(document),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"The plan is none of schema {document.get('schema')} ({type(error).__name__}: {error})."
        ) from error
