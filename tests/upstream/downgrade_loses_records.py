"""A worker that is set back from ``enabled`` takes an offset that was never committed for progress.

Below ``enabled`` a worker reads its offsets topic uncommitted. What lies between the last commit and the offset of an
aborted transaction is never read again, and no error is shown.
"""

from __future__ import annotations

from confluent_kafka import Producer

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.properties import set_property
from tests.upstream.shown import SECONDS, StartLab, append, delivered, offsets, offsets_topic, start_source
from tests.waiting import until


def text_of(numbers: range) -> str:
    return "".join(f"line {number:02}\n" for number in numbers)


def show(start: StartLab) -> str:
    lab = start(workers=1, mode=Mode.ENABLED)
    file = start_source(lab, "lines", text_of(range(10)))
    last = offsets(lab, offsets_topic(lab), "lines")[-1]
    lab.stop_worker(0)
    append(file, text_of(range(10, 20)))
    dead = Producer({"bootstrap.servers": lab.bootstrap_servers, "transactional.id": "a-task-that-died"})
    dead.init_transactions(60)
    dead.begin_transaction()
    behind_the_15th = str(len(text_of(range(15))))
    value = b'{"position":' + behind_the_15th.encode() + b"}"
    dead.produce(offsets_topic(lab), key=last.key, value=value, partition=last.partition)
    assert dead.flush(60) == 0
    dead.abort_transaction(60)

    config = lab.workers[0].config
    config.write_bytes(set_property(config.read_bytes(), MODE_PROPERTY, Mode.PREPARING))
    lab.start_worker(0)
    until(lambda: "line 19" in "".join(delivered(lab, "lines")), "the last line", seconds=SECONDS)
    lost = [number for number in range(20) if f"line {number:02}" not in "".join(delivered(lab, "lines"))]
    assert lost == list(range(10, 15)), lost
    return f"of 20 lines {len(lost)} were never delivered, and no error was shown"
