"""``eos`` for the tests, as a process of its own; and a connector under load, compared with its source in the end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.demo.oracle import Comparison, compare, drain, expected_from_file
from airflow_eos_provider.lab.lab import Lab
from tests.forked import COLUMNS, FORKS
from tests.integration.offsets_cluster import SuspendedCommand
from tests.waiting import until

#: ``eos`` that sends itself a signal.
AT_A_MOMENT = "tests.faults.eos_at_a_moment"

#: What has not come by then does not come.
SECONDS = 150.0


class Eos:
    """``eos`` as a person runs it: a process of its own, in a folder of its own."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "COLUMNS": COLUMNS, "EOS_CLUSTER": str(self.lab.cluster_file)}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return FORKS.start("airflow_eos_provider.cli", arguments, folder=self.folder, environment=self.environment)

    def run(self, *arguments: str, expect: int | tuple[int, ...] = 0) -> subprocess.CompletedProcess[str]:
        done = FORKS.run(
            "airflow_eos_provider.cli", arguments, folder=self.folder, environment=self.environment, seconds=900
        )
        codes = expect if isinstance(expect, tuple) else (expect,)
        assert done.returncode in codes, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def plan(self, to: Mode) -> str:
        return str(json.loads(self.run("plan", "--to", to, "--json").stdout)["hash"])

    def roll(self, to: Mode) -> dict[str, object]:
        # A worker starts slowly on a busy machine, and so is a look at it.
        done = self.run("apply", "--to", to, "--yes", "--json", "--gate-timeout", "300")
        report: dict[str, object] = json.loads(done.stdout)["report"]
        return report

    @contextlib.contextmanager
    def line_in_log(self, process: subprocess.Popen[str], pattern: str, seconds: float = 240.0) -> Iterator[str]:
        """The first line of progress that matches; the process is killed if the body leaves it running."""
        assert process.stderr is not None
        limit = threading.Timer(seconds, process.kill)  # ends the reading below, whether lines come or not
        limit.start()
        try:
            seen = []
            for line in process.stderr:
                seen.append(line)
                if re.search(pattern, line):
                    limit.cancel()
                    yield line
                    return
            raise AssertionError(f"no line {pattern!r} in {seconds:.0f} s or until its end: {''.join(seen)}")
        finally:
            limit.cancel()
            if process.poll() is None:
                process.kill()
            process.communicate()

    def killed_at(self, moment: str, *arguments: str) -> None:
        """``eos`` that kills itself at a moment of a roll."""
        all_arguments = (moment, "SIGKILL", *arguments)
        done = FORKS.run(AT_A_MOMENT, all_arguments, folder=self.folder, environment=self.environment, seconds=400)
        assert done.returncode == -signal.SIGKILL, done

    @contextlib.contextmanager
    def suspended_at(self, moment: str, *arguments: str) -> Iterator[SuspendedCommand]:
        """``eos`` that suspends itself at a moment of a roll; the body lets it go on, or it is killed."""
        all_arguments = (moment, "SIGSTOP", *arguments)
        process = FORKS.start(AT_A_MOMENT, all_arguments, folder=self.folder, environment=self.environment)
        with SuspendedCommand.of(process) as command:
            yield command


@pytest.fixture(scope="session")
def eos_of() -> Callable[[Lab, Path], Eos]:
    """``eos`` for one lab, called in one folder."""
    return Eos


class Load:
    """A file source and a thread that gives it another line every tenth of a second; one thing at a time.

    ``with Load(lab, "flights") as load: … roll …; assert load.compared().exactly_once``
    """

    def __init__(self, lab: Lab, topic: str, config: Mapping[str, str] | None = None) -> None:
        self.lab, self.topic, self.config = lab, topic, config or {}
        self.file = lab.data_dir / f"{topic}.txt"
        self.written = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name=f"load of {topic}")

    def __enter__(self) -> Load:
        # The broker's clock tells copies from before a moment and after it apart.
        self.lab.create_topic(self.topic, 1, {"message.timestamp.type": "LogAppendTime"})
        self.file.touch()
        with ConnectRest(self.lab.connect_urls[0], retry_seconds=180) as rest:
            connector = "org.apache.kafka.connect.file.FileStreamSourceConnector"
            config = {"connector.class": connector, "tasks.max": "1", "topic": self.topic, "file": str(self.file)}
            rest.create(self.topic, {**config, **self.config})
        self._thread.start()
        until(lambda: self.delivered() > 0, "the first line", seconds=SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=180)
        assert not self._thread.is_alive()

    def _write(self) -> None:
        with self.file.open("a", encoding="utf-8", buffering=1) as file:
            while not self._stop.wait(0.1):
                file.write(f'{{"line":{self.written}}}\n')
                self.written += 1

    def delivered(self) -> int:
        """Different lines in the topic now, as a reader of committed records sees them."""
        return len(drain(self.lab.cluster().kafka, self.topic).copies)

    def compared(self, since_ms: int | None = None) -> Comparison:
        """The topic beside the file, once no more lines are written and the last one has come.

        :param since_ms: broker time from which on duplicates count as such.
        """
        more = self.written + 10
        until(lambda: self.written > more, "a second of load after the roll", seconds=SECONDS)
        self._stop.set()
        self._thread.join(timeout=180)
        until(lambda: self.delivered() >= self.written, "every line", seconds=SECONDS)
        kafka = self.lab.cluster().kafka
        return compare(expected_from_file(self.file), drain(kafka, self.topic), since_ms=since_ms)


@pytest.fixture(scope="session")
def load_on() -> Callable[[Lab, str], Load]:
    """A connector of one lab with a topic of this name, under load."""
    return Load
