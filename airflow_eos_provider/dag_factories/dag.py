"""What all DAGs of this package have in common, and how they take ``default_args``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from airflow.sdk import DAG


def make_dag(
    dag_id: str,
    *,
    pool: str,
    default_args: Mapping[str, Any] | None,
    doc: str,
    tags: Collection[str],
    max_active_runs: int = 1,
    **more: Any,
) -> DAG:
    """A DAG that catches nothing up."""
    return DAG(
        dag_id=dag_id,
        catchup=False,
        max_active_runs=max_active_runs,
        default_args={"pool": pool, **(default_args or {})},
        doc_md=doc,
        tags=list(tags),
        **more,
    )


def also_call(callback: Callable[[Any], Any], task: Any, *events: str) -> None:
    """Call it in addition to what ``default_args`` has for these events, such as ``on_failure_callback``."""
    for event in events:
        setattr(task, event, [*getattr(task, event), callback])
