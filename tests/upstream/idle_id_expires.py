"""A task that was idle for long fails at its next write: the brokers have forgotten its transactional id (KAFKA-18019).

After ``transactional.id.expiration.ms`` (seven days) without a transaction the coordinator drops the id. The producer
that holds it does not take it anew: its next transaction fails, and with it the task, until an operator restarts it.
"""

from __future__ import annotations

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.properties import set_property
from airflow_eos_provider.kafka.transactions import TransactionsClient
from tests.upstream.shown import SECONDS, StartLab, append, failure_of, start_source
from tests.waiting import until

FORGETS = {
    "transactional.id.expiration.ms": "5000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
}


def show(start: StartLab) -> str:
    lab = start(workers=1, mode=Mode.ENABLED)
    lab.stop_worker(0)
    lab.stop_broker()
    data = lab.broker.config.read_bytes()
    for name, value in FORGETS.items():
        data = set_property(data, name, value)
    lab.broker.config.write_bytes(data)
    lab.start_broker()
    lab.start_worker(0)
    file = start_source(lab, "seldom", "one\n")
    task = f"{lab.group_id}-seldom-0"
    with TransactionsClient(lab.cluster().kafka, timeout_seconds=60) as client:
        until(lambda: task not in {one.id for one in client.list(task)}, "the id to be forgotten", seconds=SECONDS)
    append(file, "two\n")
    trace = failure_of(lab, "seldom")
    assert "InvalidPidMapping" in trace, trace
    return f"the task failed at its next line: {trace.strip().splitlines()[-1].strip()[:160] or trace[:160]}"
