"""A source connector that writes to another Kafka cluster than its workers', on real workers and two real clusters."""

from __future__ import annotations

import base64
import contextlib
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.kafka.config import KafkaSettings
from airflow_eos_provider.kafka.read import read_to_end
from airflow_eos_provider.lab.lab import Lab, LabOptions
from tests.integration.offsets_cluster import END, LINES, SECONDS, Cluster
from tests.system.modes import bring_to
from tests.waiting import until

pytestmark = pytest.mark.slow


def test_one_that_would_begin_anew_is_found_before_the_roll_and_one_whose_offsets_are_brought_there_goes_on(
    lab_factory: Callable[..., Lab], eos_of: Callable[[Lab, Path], Any], tmp_path: Path
) -> None:
    """What Connect does with it is not ours: if a later version keeps its offsets, docs/offsets.md changes."""
    options = {"rebalance_delay_ms": 200, "session_timeout_ms": 6000}
    here = Cluster(lab_factory(LabOptions(name="here", workers=2, mode=Mode.PREPARING, **options)))
    there, eos = lab_factory(name="there", workers=0), eos_of(here.lab, tmp_path)
    clients = ("producer", "consumer", "admin")
    overrides = {f"{client}.override.bootstrap.servers": there.bootstrap_servers for client in clients}
    alias = here.lab.bootstrap_servers.replace("127.0.0.1", "localhost")

    def read(name: str) -> Counter[str]:
        return Counter(
            (r.value or b"").decode() for r in read_to_end(KafkaSettings.of(there.bootstrap_servers), name).records
        )

    with here.rest:
        here.start("alias", **{"producer.override.bootstrap.servers": alias})
        for name in ("anew", "brought"):
            there.create_topic(name, 1)
            here.start(name, **overrides)
            until(partial(is_at_end, here, name), f"the end of {name} to be committed", seconds=SECONDS)
            assert read(name) == Counter(LINES)

        refused = eos.run("plan", "--to", "enabled", expect=3).stderr
        assert "other clusters: anew: its offsets are in the workers' Kafka cluster" in refused
        for name in ("anew", "brought"):
            here.rest.stop(name)
            until(partial(is_stopped, here, name), f"the stop of {name}", seconds=SECONDS)
        bring_to(here.lab, Mode.ENABLED)

        eos.run("offsets", "backup", "brought", "--to", "brought.jsonl")
        bring_offsets(tmp_path / "brought.jsonl", there, f"{here.lab.group_id}-offsets")
        for name in ("anew", "brought"):
            with here.file(name).open("a", encoding="utf-8") as file:
                file.write("four\n")
            here.rest.resume(name)
        until(lambda: read("anew")["four"] and read("brought")["four"], "the fourth line", seconds=SECONDS)
        assert read("anew") == Counter({**dict.fromkeys(LINES, 2), "four": 1})
        assert read("brought") == Counter([*LINES, "four"])

        # Each offset is in the partition of the one before, so a later start reads the later one.
        here.rest.stop("brought")
        until(partial(is_stopped, here, "brought"), "the stop of brought", seconds=SECONDS)
        with here.file("brought").open("a", encoding="utf-8") as file:
            file.write("five\n")
        here.rest.resume("brought")
        until(lambda: read("brought")["five"], "the fifth line", seconds=SECONDS)
        assert read("brought") == Counter([*LINES, "four", "five"])


def is_at_end(cluster: Cluster, name: str) -> bool:
    return bool(cluster.committed(name) == END)


def is_stopped(cluster: Cluster, name: str) -> bool:
    return cluster.state(name) == "STOPPED"


def bring_offsets(backup: Path, there: Lab, topic: str) -> None:
    """Write the offsets of a backup into the topic of another Kafka cluster, as docs/offsets.md says."""
    with contextlib.suppress(RefusedError):  # a worker may have made it
        there.create_topic(topic, 5, {"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": there.bootstrap_servers, "partitioner": "murmur2_random"})
    for line in backup.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if "key" in record and "value" in record:
            producer.produce(topic, key=base64.b64decode(record["key"]), value=base64.b64decode(record["value"]))
    assert producer.flush(60) == 0
