"""What the scripts share: their names, a lab for each, and a file source in it."""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.kafka.read.reader import LogRecord, read_to_end
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.teardown import take_down
from tests.lab.lab import TestLab, TestLabOptions
from tests.waiting import until

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"

#: For any one wait of a script, on a machine that is busy.
SECONDS = 90.0

#: Starts a lab of these options, which is taken down behind the script.
StartLab = Callable[..., TestLab]

#: Of this folder, what is no script.
_NO_SCRIPTS = ("__init__", "__main__", "own_airflow", "own_spark", "shown", "test_upstream")


def names() -> list[str]:
    """The scripts, in the order of the alphabet."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in _NO_SCRIPTS)


def show(name: str) -> str:
    """Run one script."""
    script = importlib.import_module(f"tests.upstream.{name}")
    with _labs(name) as start:
        return str(script.show(start))


@contextmanager
def _labs(name: str) -> Iterator[StartLab]:
    with tempfile.TemporaryDirectory(prefix="eos-upstream-") as folder, ExitStack() as down:

        def start(**options: Any) -> TestLab:
            wanted = TestLabOptions(name=name.replace("_", "-"), root=Path(folder), **options)
            down.callback(take_down, wanted.folder)  # before it is up: a start that fails is cleared, too
            return TestLab.up(wanted)

        yield start


@contextmanager
def rest_of(lab: TestLab) -> Iterator[ConnectRest]:
    """The REST API of the lab's first worker."""
    with ConnectRest(lab.connect_urls[0], retry_seconds=60) as rest:
        yield rest


def start_source(lab: TestLab, name: str, lines: str, **config: str) -> Path:
    """A file source whose lines are delivered, their offset committed."""
    file = lab.data_dir / f"{name}.txt"
    file.write_text(lines, encoding="utf-8")
    lab.create_topic(name)
    given = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": name, "file": str(file), **config}
    topic = config.get("offsets.storage.topic", offsets_topic(lab))
    with rest_of(lab) as rest:
        rest.create(name, given)
        until(lambda: name in rest.statuses(), f"connector {name}", seconds=SECONDS)
        until(lambda: len(delivered(lab, name)) == lines.count("\n"), "its lines", seconds=SECONDS)
        until(lambda: rest.offsets(name), f"its offset in {topic}", seconds=SECONDS)
    return file


def offsets_topic(lab: TestLab) -> str:
    """The group's own."""
    return f"{lab.group_id}-offsets"


def delivered(lab: TestLab, topic: str) -> list[str]:
    """The values of a topic's committed records, in its order."""
    records = read_to_end(KafkaSettings.of(lab.bootstrap_servers), topic).records
    return [(record.value or b"").decode() for record in records]


def offsets(lab: TestLab, topic: str, connector: str) -> list[LogRecord]:
    """Each committed record of a connector in an offsets topic, the oldest first."""
    found = read_to_end(lab.cluster().kafka, topic).records
    return [record for record in found if record.key and json.loads(record.key)[0] == connector]


def failures(lab: TestLab, connector: str) -> list[str]:
    """The traces of a connector's failed tasks."""
    with rest_of(lab) as rest:
        status = rest.statuses().get(connector)
    return [task.trace or "" for task in status.tasks if task.state == "FAILED"] if status else []


def failure_of(lab: TestLab, connector: str) -> str:
    """The trace of a connector's only task, once it has failed."""
    until(lambda: failures(lab, connector), f"the task of {connector} to fail", seconds=SECONDS)
    return failures(lab, connector)[0]


def append(file: Path, lines: str) -> None:
    with file.open("a", encoding="utf-8") as out:
        out.write(lines)
