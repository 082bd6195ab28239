"""Whether the tasks of a group write their source offsets in transactions, asked of its workers."""

from __future__ import annotations

import time

from airflow_eos_provider.connect.mode_evidence import probe
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.errors import RefusedError

#: How long a worker has to answer.
_ANSWER_SECONDS = 60.0


def runs_exactly_once(session: ConnectSession) -> bool:
    """Whether all workers run in the mode ``enabled``; False if none does.

    Each worker is asked to validate a connector that requires exactly-once (``ExactlyOnceSourceIT``'s way to see it
    from outside), so this needs nothing but their REST API.
    """
    found: dict[str, bool | None] = {}
    why: dict[str, str] = {}
    for worker in session.cluster.workers:
        with session.rest(worker.url, give_up_at=time.monotonic() + _ANSWER_SECONDS) as rest:
            observed = probe(rest)
        found[worker.worker_id], why[worker.worker_id] = observed.runs_exactly_once, observed.detail
    verdicts = set(found.values())
    if verdicts == {True} or verdicts == {False}:
        return verdicts == {True}
    if silent := sorted(worker for worker, runs in found.items() if runs is None):
        raise RefusedError(
            f"eos cannot tell whether exactly-once source connectors run on {', '.join(silent)}: {why[silent[0]]}.",
            expected="an answer of every worker of the cluster file",
            remedy="Start it, or end its process if it hangs: it may still write. Take a worker that is gone out of "
            "the cluster file.",
        )
    raise RefusedError(
        "Some workers run exactly-once source connectors, others do not: "
        + "; ".join(f"{worker}: {detail}" for worker, detail in why.items())
        + ".",
        remedy="Offsets have no guarantee in between: finish the roll ('eos status', 'eos plan'), then try again.",
    )
