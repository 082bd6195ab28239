"""Connect's own reset fails for a connector with an offsets topic of its own, while exactly-once is on.

The tombstone goes to the global topic first; by the source the worker commits the transaction at once, and writes to
the own topic only when the first write is answered, in no transaction any more. The request times out after 90 s; the
global topic has its tombstone, the own topic its offset. (Since 3.8, KAFKA-15018.)
"""

from __future__ import annotations

import httpx

from airflow_eos_provider.connect.mode import Mode
from tests.upstream.shown import SECONDS, StartLab, offsets, offsets_topic, rest_of, start_source
from tests.waiting import status_of, until

PATIENCE_SECONDS = 20


def show(start: StartLab) -> str:
    lab = start(workers=1, mode=Mode.ENABLED)
    start_source(lab, "owned", "one\n", **{"offsets.storage.topic": "owned-offsets"})
    with rest_of(lab) as rest:
        rest.stop("owned")
        until(lambda: status_of(rest, "owned").state == "STOPPED", "the stop", seconds=SECONDS)
    try:
        answer = httpx.delete(
            f"{lab.connect_urls[0]}/connectors/owned/offsets", timeout=PATIENCE_SECONDS, trust_env=False
        )
    except httpx.ReadTimeout:
        pass
    else:
        raise AssertionError(f"answered {answer.status_code}: {answer.text}")
    assert offsets(lab, offsets_topic(lab), "owned")[-1].value is None
    own = offsets(lab, "owned-offsets", "owned")[-1].value
    assert own == b'{"position":4}', own
    return f"DELETE did not answer in {PATIENCE_SECONDS} s; the own topic still has its offset"
