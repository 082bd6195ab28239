"""A run's ``conf`` contains only parameters of the DAG.

Airflow takes any key into a run's ``conf`` and drops what no parameter is named after: ``resaon`` leaves the default
reason, ``takeover`` takes nothing over, and nothing reports it.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowFailException

from airflow_eos_provider.data_text import one_line

if TYPE_CHECKING:
    from airflow.sdk import Context

#: Airflow's lineage provider adds this to the runs that it follows from one DAG to the next.
_OF_AIRFLOW = frozenset({"openlineage"})


def refuse_unknown_conf(context: Context) -> None:
    """The ``pre_execute`` of a DAG's first task."""
    problem = unknown_keys(context["dag_run"].conf or {}, context["dag"].params)
    if problem:
        raise AirflowFailException(f"{problem} Nothing was done. Start a new run.")


def unknown_keys(given: Iterable[str], known: Iterable[str]) -> str | None:
    """What is wrong with these keys, in words; None if nothing is."""
    names = sorted(known)
    unknown = sorted(str(key) for key in given if key not in names and key not in _OF_AIRFLOW)
    if not unknown:
        return None
    words = []
    for key in unknown:
        close = get_close_matches(key.lower(), names, n=1)
        words.append(f"{one_line(key)!r}" + (f" (is {close[0]!r} meant?)" if close else ""))
    expected = f"this DAG takes {', '.join(names)}" if names else "this DAG takes none"
    return f"Unknown in the run's conf: {', '.join(words)}; {expected}."
