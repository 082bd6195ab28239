"""The same key written by librdkafka goes to another partition than Java's: compaction never joins the two.

Java hashes a key by murmur2, librdkafka by CRC32 unless it is told otherwise. An offset that is corrected by a client
of the other kind leaves the old one where it was, and a worker takes whichever it reads last.
"""

from __future__ import annotations

from confluent_kafka import Producer

from tests.upstream.shown import StartLab, offsets, offsets_topic, start_source


def show(start: StartLab) -> str:
    lab = start(workers=1)
    places = set[int]()
    for number in range(5):  # by chance one key may have the same place in both
        name = f"source-{number}"
        start_source(lab, name, "one\n")
        connects = offsets(lab, offsets_topic(lab), name)[-1]
        producer = Producer({"bootstrap.servers": lab.bootstrap_servers})
        producer.produce(offsets_topic(lab), key=connects.key, value=b'{"position":0}')
        assert producer.flush(60) == 0
        places = {record.partition for record in offsets(lab, offsets_topic(lab), name)}
        if len(places) == 2:
            break
    assert len(places) == 2, places
    return f"one key is in partitions {' and '.join(map(str, sorted(places)))}, with a value in each"
