"""Labs for the tests: started when first asked for, taken down by identity at the end, whatever happened between."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.lab.teardown import take_down
from airflow_eos_provider.processes import ProcessIdentity, identify

LabFactory = Callable[..., Lab]
Guard = Callable[[Path], None]


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail the session, and clean up, if a process that the tests started outlives them."""
    began = time.time()
    yield
    left = [identity for identity in _started_since(began, tmp_path_factory.getbasetemp()) if _stays(identity)]
    told = [f"{identity.pid}: {' '.join(identity.command_line())[:200]}" for identity in left]
    for identity in left:
        identity.stop(kill=True)
    assert not told, "The tests left processes behind:\n" + "\n".join(told)


def _started_since(began: float, folder: Path) -> list[ProcessIdentity]:
    """Processes below this one, or that name the tests' folder, started since; not the callers of pytest."""
    above = {os.getpid(), *(process.pid for process in psutil.Process().parents())}
    below = {process.pid for process in psutil.Process().children(recursive=True)}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            if process.pid in above or process.create_time() < began - 1:
                continue
            if process.pid in below or any(str(folder) in argument for argument in process.cmdline()):
                found.append(identify(process.pid))
    return [identity for identity in found if identity is not None]


def _stays(identity: ProcessIdentity) -> bool:
    """Whether the process is there to stay; one that is just ending gets a moment."""
    deadline = time.monotonic() + 5
    while identity.is_alive():
        if time.monotonic() > deadline:
            return True
        time.sleep(0.1)
    return False


#: Takes down the labs in the folders it has been told of once its standard input ends, which it does with the tests.
_GUARDIAN = """
import sys
from pathlib import Path
from airflow_eos_provider.lab.teardown import take_down
for folder in sys.stdin.read().splitlines():
    take_down(Path(folder))
"""


@pytest.fixture(scope="session")
def guard(nothing_is_left_running: None) -> Iterator[Guard]:
    """Name a lab's folder before the lab is up, and it is taken down even if the tests are killed or time out.

    A test that runs into its time limit ends the whole of pytest without any clean-up, so another process does it.
    """
    command = [sys.executable, "-c", _GUARDIAN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True) as guardian:
        assert guardian.stdin is not None
        stdin = guardian.stdin

        def take_note(folder: Path) -> None:
            stdin.write(f"{folder}\n")
            stdin.flush()

        yield take_note
        stdin.close()
        assert guardian.wait(timeout=120) == 0


@contextlib.contextmanager
def _labs(tmp_path_factory: pytest.TempPathFactory, guard: Guard) -> Iterator[LabFactory]:
    with ExitStack() as folders:

        def start(options: LabOptions | None = None, **overrides: Any) -> Lab:
            root = tmp_path_factory.mktemp("labs")
            wanted = replace(options or LabOptions(), **{"root": root, **overrides})
            guard(wanted.folder)
            folders.callback(take_down, wanted.folder)  # before it is up: a start that fails is cleared, too
            return Lab.up(wanted)

        yield start


@pytest.fixture(scope="module")
def lab_factory(tmp_path_factory: pytest.TempPathFactory, guard: Guard) -> Iterator[LabFactory]:
    """Start labs that live as long as the tests of one module: ``lab_factory(LabOptions(…))`` or by keywords."""
    with _labs(tmp_path_factory, guard) as start:
        yield start


@pytest.fixture(scope="session")
def disabled_lab(tmp_path_factory: pytest.TempPathFactory, guard: Guard) -> Iterator[Lab]:
    """Three workers in mode disabled, for tests that leave the workers alone; connectors of their own are fine."""
    with _labs(tmp_path_factory, guard) as start:
        yield start(name="disabled", mode=Mode.DISABLED)


@pytest.fixture(scope="session")
def spark_properties(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Properties of a Spark session on the loopback interface that takes failed tasks up again, as a cluster does."""
    folder = tmp_path_factory.mktemp("spark")
    return {
        "spark.master": "local[2,4]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.memory": "1g",
    }


@pytest.fixture(scope="session")
def spark(nothing_is_left_running: None, spark_properties: dict[str, str]) -> Iterator[Any]:
    """A Spark session in this process; its JVM ends with the tests."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        builder: Any = SparkSession.builder
        for name, value in spark_properties.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        gateway: Any = SparkContext._gateway
        yield session
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends with its standard input
        assert gateway.proc.wait(timeout=30) is not None
        SparkContext._gateway = SparkContext._jvm = None
