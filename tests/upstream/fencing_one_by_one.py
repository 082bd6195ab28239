"""Java's ``Admin.fenceProducers`` fences one id after another, about one a second for each broker.

After each answer, also a good one, it waits for its retry back-off, which grows from 100 ms to 1 s. Connect's leader
has 90 s for a round, so a connector of some hundred tasks can never be fenced: each change of its tasks fails them all.
"""

from __future__ import annotations

import time

from airflow_eos_provider.kafka.transactions import TransactionsClient
from tests.benchmarks.java_peer import run_java
from tests.upstream.shown import StartLab

IDS, LIMIT_SECONDS = 60, 20


def show(start: StartLab) -> str:
    lab = start(workers=0)
    with TransactionsClient(lab.broker.lab_client, timeout_seconds=60) as client:
        client.fence(["first"])  # the broker makes its topic of transactions
        began = time.monotonic()
        assert len(client.fence([f"ours-{number}" for number in range(IDS)])) == IDS
        ours = time.monotonic() - began
    arguments = [lab.bootstrap_servers, "javas-", IDS, LIMIT_SECONDS * 1000]
    ((seconds, fenced),) = run_java("FencePeer.java", arguments, timeout_seconds=LIMIT_SECONDS + 60)
    assert fenced < IDS, f"Java fenced {fenced:.0f} ids in {seconds:.1f} s"
    return f"{fenced:.0f} of {IDS} ids fenced in {seconds:.0f} s; all at once they take {ours:.1f} s"
