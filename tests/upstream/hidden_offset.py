"""Connect's REST API hides an offset whose key is spelt in another order, and says that it has removed it.

A source partition is a JSON object; its fields have the order of the connector's own Java map. The REST paths encode it
anew in the order of a ``HashMap``, and look it up by its bytes. So ``GET`` shows no offset where there is one, and
``DELETE`` answers that it has reset it, and writes its tombstone under the other spelling.
"""

from __future__ import annotations

import httpx
from confluent_kafka import Producer

from tests.upstream.shown import FILE_SOURCE, SECONDS, StartLab, offsets, offsets_topic, rest_of
from tests.waiting import until

KEY = b'["spelt",{"z":"1","a":"2"}]'


def show(start: StartLab) -> str:
    lab = start(workers=1)
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "partitioner": "murmur2_random"})
    producer.produce(offsets_topic(lab), key=KEY, value=b'{"position":4}')
    assert producer.flush(60) == 0
    with rest_of(lab) as rest:
        rest.create("spelt", {"connector.class": FILE_SOURCE, "topic": "spelt", "file": "none"}, "STOPPED")
        until(lambda: "spelt" in rest.statuses(), "the connector", seconds=SECONDS)

    address = f"{lab.connect_urls[0]}/connectors/spelt/offsets"
    (shown,) = httpx.get(address, timeout=60, trust_env=False).json()["offsets"]
    assert shown == {"partition": {"a": "2", "z": "1"}, "offset": None}, shown
    answer = httpx.delete(address, timeout=60, trust_env=False)
    assert "have been reset successfully" in answer.text, answer.text
    left = {record.key: record.value for record in offsets(lab, offsets_topic(lab), "spelt")}
    assert left[KEY] == b'{"position":4}', left
    return f"GET showed {shown['offset']}, DELETE answered {answer.status_code}, and the offset is still there"
