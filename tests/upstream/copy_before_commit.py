"""With an offsets topic of its own, a connector's copy in the global topic is ahead of what was delivered.

A task writes the copy as soon as the broker has the offset in the own topic, outside the transaction and before its
commit (``ConnectorOffsetBackingStore.set``). If that is aborted, the copy stays. Whoever goes on by the global topic
(an older version, or a connector that gives up its own topic) skips what lies between.
"""

from __future__ import annotations

import json

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.kafka.topics import Topics
from tests.upstream.shown import (
    SECONDS,
    StartLab,
    append,
    delivered,
    failures,
    offsets,
    offsets_topic,
    start_source,
)
from tests.waiting import until


def show(start: StartLab) -> str:
    lab = start(workers=1, mode=Mode.ENABLED)
    # In one request the records and their offset are sent; the broker refuses the records alone.
    own = {"offsets.storage.topic": "ahead-offsets", "producer.override.linger.ms": "1000"}
    file = start_source(lab, "ahead", "line\n", **own)
    topics = Topics(lab.cluster().kafka)
    topics.change("ahead", {"max.message.bytes": "10"})

    def has_failed() -> bool:
        """A moment after it was answered the broker goes by the setting; until then each line is delivered."""
        if len(delivered(lab, "ahead")) == file.read_text(encoding="utf-8").count("\n"):
            append(file, "line\n")
        return bool(failures(lab, "ahead"))

    until(has_failed, "the task to fail", seconds=SECONDS)
    committed, copied = (
        json.loads(offsets(lab, topic, "ahead")[-1].value or b"null")["position"]
        for topic in ("ahead-offsets", offsets_topic(lab))
    )
    assert committed == len("line\n") * len(delivered(lab, "ahead"))
    assert copied > committed, (copied, committed)
    return f"delivered and committed up to {committed}, the copy in the global topic says {copied}"
