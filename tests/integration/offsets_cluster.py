"""A lab whose file sources read three lines each, and ``eos`` that gets a signal at a step of a change."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import psutil
from confluent_kafka import Producer

from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.connect.topics.source_offsets import offset_key
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.lab.lab import Lab
from tests.forked import FORKS
from tests.waiting import status_of, until

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
_MIRROR_SOURCE = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
LINES = ("one", "two", "three")
END = {"position": 14}
SECONDS = 90.0

#: Of workers whose tasks deliver nothing twice below enabled: one that is stopped ends by itself and commits its
#: offsets, however busy the machine is.
PATIENT_STOP = {"task.shutdown.graceful.timeout.ms": "60000", "offset.flush.timeout.ms": "60000"}


def mirror(lab: Lab, topics: str) -> dict[str, str]:
    """A connector of three tasks that copies topics to ``src.<topic>`` of the same brokers."""
    return {
        "connector.class": _MIRROR_SOURCE,
        "tasks.max": "3",
        "topics": topics,
        "source.cluster.alias": "src",
        "target.cluster.alias": "dst",
        "source.cluster.bootstrap.servers": lab.bootstrap_servers,
        "target.cluster.bootstrap.servers": lab.bootstrap_servers,
        "key.converter": _BYTES,
        "value.converter": _BYTES,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "consumer.isolation.level": "read_committed",
        "source.consumer.isolation.level": "read_committed",
    }


def open_transaction(bootstrap_servers: str, transactional_id: str, topic: str) -> Producer:
    """A producer that has written something and is stuck in its transaction."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 600_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(180)
    producer.begin_transaction()
    producer.produce(topic, b"of a zombie")
    assert producer.flush(180) == 0
    return producer


class Cluster:
    """A lab, and what its connectors have read."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.rest = ConnectRest(lab.connect_urls[0], retry_seconds=180)

    def source(self, name: str, **extra: str) -> None:
        """A connector that reads a file of three lines, once it has committed its end."""
        self.start(name, **extra)
        self.until_read(name, 1)

    def start(self, name: str, **extra: str) -> None:
        """A connector that reads a file of three lines."""
        self.lab.create_topic(name, 1)
        self.file(name).write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
        self.rest.create(name, {**self.config(name), **extra})

    def config(self, name: str) -> dict[str, str]:
        return {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": name, "file": str(self.file(name))}

    def file(self, name: str) -> Path:
        return self.lab.data_dir / f"{name}.txt"

    def read(self, name: str) -> Counter[str]:
        """The committed records of a topic, as a multiset."""
        records = read_to_end(self.lab.cluster().kafka, name).records
        return Counter((record.value or b"").decode() for record in records)

    def until_delivered(self, name: str, wanted: Mapping[str, int] | Iterable[str]) -> None:
        """Its topic has these lines, each so often, exactly."""
        until(lambda: self.read(name) == Counter(wanted), f"{wanted} in {name}", seconds=SECONDS)

    def until_read(self, name: str, times: int) -> None:
        """Each line was delivered so often, exactly, and the end of the file is committed."""
        self.until_delivered(name, dict.fromkeys(LINES, times))
        until(lambda: self.committed(name) == END, f"the end of {name} to be committed", seconds=SECONDS)

    def deliver(self, name: str, line: str, delivered: Counter[str]) -> None:
        """One more line in the file of a connector, which delivers it and nothing else: so its task is alive.

        :param delivered: what it has delivered so far; the line is added.
        """
        self.add(name, line)
        delivered[line] += 1
        self.until_delivered(name, delivered)

    def committed(self, name: str) -> Any:
        offsets = self.rest.offsets(name)
        return offsets[0].offset if offsets else None

    def removals(self, name: str) -> int:
        """How many records in the global topic remove the connector's offset."""
        return self.values(name).count(None)

    def values(self, name: str, file_of: str = "") -> list[Any]:
        """Every offset that the global topic has ever got for a connector; None where one was removed.

        :param file_of: the connector whose file it reads, if that is another.
        """
        key = offset_key(name, {"filename": str(self.file(file_of or name))})
        records = read_to_end(self.lab.cluster().kafka, self.global_topic).records
        return [record.value and json.loads(record.value) for record in records if record.key == key]

    @property
    def global_topic(self) -> str:
        """The workers' ``offset.storage.topic``."""
        return f"{self.lab.group_id}-offsets"

    def key(self, name: str) -> bytes:
        """The key of the offset of a connector's file."""
        return offset_key(name, {"filename": str(self.file(name))})

    def put(self, key: bytes, value: bytes | None, topic: str = "") -> None:
        """A record that another program writes into the global topic, or into another one."""
        producer = Producer({"bootstrap.servers": self.lab.bootstrap_servers, "partitioner": "murmur2_random"})
        producer.produce(topic or self.global_topic, key=key, value=value)
        assert producer.flush(180) == 0

    def add(self, name: str, line: str) -> None:
        """One more line in the file of a connector."""
        with self.file(name).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def stop(self, name: str) -> None:
        self.rest.stop(name)
        until(lambda: self.state(name) == "STOPPED", "the stop", seconds=SECONDS)

    def state(self, name: str) -> str:
        return status_of(self.rest, name).state


#: ``eos`` that sends itself a signal.
_SIGNALLED = "tests.integration.signalled_at"
_FOLDER = Path(__file__).parents[2]


def killed(lab: Lab, step: str, point: str, *arguments: str) -> None:
    """``eos``, which kills itself at this point of a step."""
    all_arguments = ("SIGKILL", step, point, *arguments)
    done = FORKS.run(_SIGNALLED, all_arguments, folder=_FOLDER, environment=_environment(lab), seconds=400)
    assert done.returncode == -signal.SIGKILL, f"{step} {point}: {done}"


def _environment(lab: Lab) -> dict[str, str]:
    return {**os.environ, "EOS_CLUSTER": str(lab.cluster_file)}


class SuspendedCommand:
    """``eos`` that suspends itself.

    :ivar errors: what it has reported, once it has ended.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.errors = ""

    @classmethod
    @contextmanager
    def of(cls, process: subprocess.Popen[str]) -> Iterator[Self]:
        """A process once it has suspended itself; it is killed if the body does not let it go on to its end."""
        try:
            command = cls(process)
            command.await_step()
            yield command
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def await_step(self) -> None:
        """Wait until it is suspended, for the first time or once more."""
        until(self._is_suspended, "its suspension", seconds=SECONDS)

    def _is_suspended(self) -> bool:
        assert self._process.poll() is None, self._process.communicate()
        return psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> int:
        """Let it go on to its end.

        :returns: its exit code.
        """
        self.go_on()
        _, self.errors = self._process.communicate(timeout=400)
        return self._process.returncode


@contextmanager
def suspended(lab: Lab, steps: str, *arguments: str) -> Iterator[SuspendedCommand]:
    """A change that is suspended while the body runs, which lets it go on.

    :param steps: where, separated by commas.
    """
    all_arguments = ("SIGSTOP", steps, "announced", *arguments)
    process = FORKS.start(_SIGNALLED, all_arguments, folder=_FOLDER, environment=_environment(lab))
    with SuspendedCommand.of(process) as change:
        yield change
