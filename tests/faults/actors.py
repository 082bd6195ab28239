"""The processes of the fault tests: drivers and tasks that report each step, and die or stop where their job says so.

Run as a program this is a server that has everything imported and forks a process for each job, which costs
milliseconds instead of a third of a second. The processes are real: they are killed and paused by signals.

A job comes as one line of JSON over the connection; what happens goes back as lines of JSON. A job's ``stops`` are
steps, ``step`` for its first time or ``step#n`` for its n-th, at which the process sends itself SIGSTOP; ``dies``
are those at which it sends itself SIGKILL. ``control_timeout_ms`` is the timeout of its control transactions, which a
dead driver leaves open.

Each actor reports where its code is from, so that a test of a copied tree fails if its actors run the installed one.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pandas  # noqa: F401  pyarrow imports it with the first array, which is half a second of CPU for each task

import airflow_eos_provider
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.messages import Completed, Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol import admission
from airflow_eos_provider.interval.protocol.coordinator import Coordinator
from airflow_eos_provider.local_processes import identify
from tests.faults.line_slices import figures_of_lines, plan_files, write_slices


class Actor:
    """One job's process."""

    def __init__(self, connection: socket.socket) -> None:
        self._lines = connection.makefile("rw", encoding="utf-8")
        self._job: dict[str, Any] = json.loads(self._lines.readline())
        self._steps: Counter[str] = Counter()

    def act(self) -> None:
        identity = identify(os.getpid())
        assert identity is not None
        code = Path(airflow_eos_provider.__file__).resolve().parents[1]
        self.tell(pid=identity.pid, started_at=identity.started_at, code=str(code))
        if timeout_ms := self._job.get("control_timeout_ms"):  # of this process alone, which was forked for the job
            admission.TRANSACTION_TIMEOUT_MS = timeout_ms
        try:
            getattr(self, f"_{self._job['kind']}")()
        except EosError as error:
            self.tell(error=type(error).__name__, text=str(error))
        except Exception:
            self.tell(error="a crash", text=traceback.format_exc())

    def tell(self, **event: Any) -> None:
        self._lines.write(json.dumps(event) + "\n")
        self._lines.flush()

    def step(self, name: str) -> None:
        self._steps[name] += 1
        names = {f"{name}#{self._steps[name]}"} | ({name} if self._steps[name] == 1 else set())
        self.tell(step=name)
        if names & set(self._job.get("dies", ())):
            os.kill(os.getpid(), signal.SIGKILL)
        if names & set(self._job.get("stops", ())):
            self.tell(stopped=name)
            os.kill(os.getpid(), signal.SIGSTOP)

    def _driver(self) -> None:
        job = self._job
        run = Run.parse(job["run"])
        with self._coordinator(run) as coordinator:
            begun = coordinator.begin(lambda: plan_files(run, [Path(job["file"])], job["slice_bytes"]), job["tasks"])
            if not isinstance(begun, Completed):
                pipeline = Pipeline.from_dict(job["pipeline"])
                begun = coordinator.compare_input(begun, partial(figures_of_lines, pipeline, begun))
                self.tell(stage=begun.to_dict())
                if not self._lines.readline():  # the one who runs the stage says when it has ended
                    return
                begun = coordinator.finish(begun)
            self.tell(completed=begun.to_dict())

    def _abandoner(self) -> None:
        with self._coordinator(Run.parse(self._job["run"])) as coordinator:
            coordinator.abandon()
            self.tell(abandoned=True)

    def _coordinator(self, run: Run) -> Coordinator:
        return Coordinator(
            Pipeline.from_dict(self._job["pipeline"]),
            run,
            began_at=time.time(),
            report=lambda line: self.tell(line=line),
            on_step=self.step,
        )

    def _task(self) -> None:
        write_slices(
            Pipeline.from_dict(self._job["pipeline"]),
            Stage.from_dict(self._job["stage"]),
            self._job["task"],
            report=lambda line: self.tell(line=line),
            on_step=self.step,
        )
        self.tell(written=True)


def serve(path: str) -> None:
    """Fork a process for each connection, until killed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks for the children's exit codes
    gc.freeze()  # a child that collects garbage leaves what is imported alone, and so shares its memory
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(64)
        while True:
            connection, _ = server.accept()
            if os.fork() == 0:
                server.close()
                try:
                    Actor(connection).act()
                except BrokenPipeError:
                    pass  # the test is over
                finally:
                    os._exit(0)
            connection.close()


if __name__ == "__main__":
    serve(sys.argv[1])
