"""Transactional ids fenced, beside Java's ``Admin.fenceProducers``, which Connect's leader calls.

Java's call is given a limit, for it does not end by itself with a hundred ids; what it had fenced by then counts. Ids
are new to the broker, our connection included; medians.
"""

from __future__ import annotations

import statistics
import time
import uuid

from rich.console import Console

from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.lab import Lab
from tests.benchmarks.java_peer import run_java
from tests.benchmarks.result import Result, own_lab

COUNT = 1_000
TRIALS = 3
JAVA_LIMIT_SECONDS = 30


def run(console: Console) -> list[Result]:
    with own_lab("fencing") as lab:
        _seconds(lab, 1)  # the broker makes its topic of transactions
        ours = statistics.median(_seconds(lab, COUNT) for _ in range(TRIALS))
        arguments = [lab.bootstrap_servers, f"{uuid.uuid4().hex}-", COUNT, JAVA_LIMIT_SECONDS * 1000]
        ((java, fenced),) = run_java("FencePeer.java", arguments, timeout_seconds=JAVA_LIMIT_SECONDS + 60)
    what = f"{COUNT:,} ids fenced (ours in {ours:.2f} s; Java {fenced:.0f} of them in {java:.1f} s)"
    console.print(what)
    return [Result("fence_vs_java_admin", COUNT / ours, fenced / java, "higher", "ids/s", what)]


def _seconds(lab: Lab, count: int) -> float:
    prefix = uuid.uuid4().hex
    began = time.perf_counter()
    with TransactionsClient(KafkaSettings.of(lab.bootstrap_servers), timeout_seconds=120) as client:
        fenced = client.fence([f"{prefix}-{number}" for number in range(count)])
    assert len(fenced) == count
    return time.perf_counter() - began
