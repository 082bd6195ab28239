"""One open transaction on the global offsets topic holds up everybody who reads offsets from it.

A worker reads committed offsets to the end of the topic, and the end is behind the open transaction. A connector with
an offsets topic of its own reads the global one as well, and waits with the rest.
"""

from __future__ import annotations

import httpx
from confluent_kafka import Producer

from airflow_eos_provider.connect.mode import Mode
from tests.upstream.shown import StartLab, offsets_topic, start_source

PATIENCE_SECONDS = 20


def show(start: StartLab) -> str:
    lab = start(workers=1, mode=Mode.ENABLED)
    start_source(lab, "owned", "one\n", **{"offsets.storage.topic": "owned-offsets"})
    address = f"{lab.connect_urls[0]}/connectors/owned/offsets"
    assert httpx.get(address, timeout=60, trust_env=False).status_code == 200

    settings = {"bootstrap.servers": lab.bootstrap_servers, "transactional.id": "foreign"}
    foreign = Producer({**settings, "transaction.timeout.ms": 600_000})
    foreign.init_transactions(60)
    foreign.begin_transaction()
    foreign.produce(offsets_topic(lab), key=b"of nobody here", partition=0)
    assert foreign.flush(60) == 0
    try:
        answer = httpx.get(address, timeout=PATIENCE_SECONDS, trust_env=False)
    except httpx.ReadTimeout:
        foreign.abort_transaction(60)
    else:
        raise AssertionError(f"answered {answer.status_code}: {answer.text}")
    after = httpx.get(address, timeout=120, trust_env=False)
    assert after.status_code == 200, after.text
    return f"GET of a connector with a topic of its own had no answer in {PATIENCE_SECONDS} s; after the abort it has"
