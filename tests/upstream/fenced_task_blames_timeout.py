"""A task whose producer was fenced says that its transaction has expired.

Both come as an invalid producer epoch, and Connect's message knows one of them only: it advises a longer timeout, or a
shorter interval. What helps is to look who has taken the id.
"""

from __future__ import annotations

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from tests.upstream.shown import StartLab, append, failure_of, start_source


def show(start: StartLab) -> str:
    lab = start(workers=1, mode=Mode.ENABLED)
    file = start_source(lab, "fenced", "one\n")
    with TransactionsClient(lab.cluster().kafka, timeout_seconds=60) as client:
        client.fence([f"{lab.group_id}-fenced-0"])
    append(file, "two\n")
    trace = failure_of(lab, "fenced")
    assert "before its producer transaction expired" in trace, trace
    return 'fenced a moment ago, the task says "…before its producer transaction expired"'
