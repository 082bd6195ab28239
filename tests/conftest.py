"""Labs for the tests: started when first asked for, taken down by identity at the end, whatever happened between."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import secrets
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_eos_provider import redaction
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.interval.spark.executors.needs import DAEMON_MODULE, DAEMON_PROPERTY
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.lab_processes import marker
from airflow_eos_provider.lab.ports import PORTS_VARIABLE, free_ports
from airflow_eos_provider.lab.record import LabOptions
from airflow_eos_provider.lab.servers.postgres import Postgres
from airflow_eos_provider.local_processes import ProcessIdentity, identify, spawn
from tests import airflow_home as airflow_home  # before any import of Airflow
from tests.forked import FORKS
from tests.lab.lab import TestLab, TestLabOptions, take_down
from tests.lab.machine_needs import need_machines
from tests.lab.spark_class_data import ensure_spark_archive, spark_jvm_options
from tests.needs import mark, require_needs
from tests.shared import SHARED, Shared
from tests.spark_session import spark_session
from tests.tiers import Families, add_option, family_of, imports_nothing_for, leave_out

LabFactory = Callable[..., TestLab]
Guard = Callable[[Path], None]

#: Seconds that each test file takes in a full run; ``python -m tests.durations REPORT.xml --write`` writes it.
DURATIONS = Path(__file__).with_name("durations.json")


def pytest_addoption(parser: pytest.Parser) -> None:
    add_option(parser)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What the chosen tier leaves out is not even imported."""
    return True if collection_path.is_file() and imports_nothing_for(config, collection_path) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Each test is marked by what it starts: ``-m "not spark"``."""
    mark(item)


#: Whatever a test draws by lot is drawn from this seed; set, it repeats a run.
SEED_VARIABLE = "EOS_TEST_SEED"


def pytest_configure(config: pytest.Config) -> None:
    """Draw the seed before the processes of xdist are started, which get it with their environment.

    Each of these processes, with all that it starts, has a range of ports of its own: where one has stopped a worker
    for a moment, no lab of another takes its port.
    """
    gc.disable()  # what is collected and imported stays
    # pytest keeps the tests as it has rewritten them: to do it again costs each process of xdist a third of its start.
    sys.dont_write_bytecode = False
    os.environ.setdefault(SEED_VARIABLE, str(random.SystemRandom().randrange(1_000_000)))
    number = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if number.isdecimal():
        count = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        size = 12_000 // count
        first = 20_000 + size * (int(number) % count)  # one that follows a crashed process has a higher number
        os.environ[PORTS_VARIABLE] = f"{first}-{first + size - 1}"


def pytest_collection_finish() -> None:
    """From here on garbage is collected, without a look at all that is there already."""
    gc.freeze()
    gc.enable()


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {SEED_VARIABLE}={os.environ[SEED_VARIABLE]}"


#: The labs of this process; those that are down have no logs any more.
_STARTED: list[Lab] = []

#: Of a worker's log, what a test that has failed shows.
_LOG_LINES = 25


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that has failed shows what the workers that are up have logged last as warnings and errors."""
    report = yield
    if report.failed:
        for log in [worker.log for lab in _STARTED for worker in lab.workers if worker.log.is_file()]:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            shown = "\n".join(_problems(lines)[-_LOG_LINES:])
            report.sections.append((f"the last warnings and errors in {log}", shown))
    return report


def _problems(lines: list[str]) -> list[str]:
    """Warnings and errors, with the exceptions behind them and without the frames of their stacks."""
    problems: list[str] = []
    is_part = False
    for line in lines:
        if line.startswith("["):
            is_part = " WARN " in line or " ERROR " in line
        if is_part and not line.startswith("\t"):
            problems.append(line)
    return problems


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """With a family's last test end what its files share."""
    try:
        yield
    finally:
        if nextitem is None or _family_of(nextitem) != _family_of(item):
            SHARED.end()


def _family_of(item: pytest.Item) -> str:
    return family_of(item.nodeid.partition("::")[0])


@pytest.fixture
def seed() -> int:
    """The run's seed; shown again by a test that fails."""
    seed = int(os.environ[SEED_VARIABLE])
    sys.stderr.write(f"{SEED_VARIABLE}={seed} repeats this\n")
    return seed


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Families:
    return Families(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The chosen tier, and the longest families first, so that no long one is left over for one process at the end.

    Within a file the order stays, or with ``EOS_TESTS_REVERSED`` set is turned round, which shows a test that relies on
    the one before. A file that is not in the table counts as half a minute.
    """
    require_needs(items)
    leave_out(config, items)
    seconds: dict[str, float] = json.loads(DURATIONS.read_text(encoding="utf-8"))
    root = Path(__file__).parent.parent

    names = {item.path: item.path.relative_to(root).as_posix() for item in items}
    of_families = Counter[str]()
    for name in names.values():
        of_families[family_of(name)] += seconds.get(name, 30.0)  # type: ignore[assignment]

    def file_order(item: pytest.Item) -> tuple[float, str, str]:
        name = names[item.path]
        return -of_families[family_of(name)], family_of(name), name

    if os.environ.get("EOS_TESTS_REVERSED"):
        items.reverse()
    items.sort(key=file_order)


@pytest.fixture(scope="module", autouse=True)
def clients_of_other_files_are_closed() -> None:
    """Close the Kafka clients that the tests of an earlier file have left to the garbage collector.

    Their broker is gone, so their threads would connect again and again beside the tests of this file.
    """
    if left := [thread for thread in threading.enumerate() if thread.name.startswith("kafka-io-")]:
        gc.collect()
        for thread in left:
            thread.join(5.0)


@pytest.fixture(scope="module", autouse=True)
def secrets_of_other_files_are_forgotten() -> None:
    """Let the passwords of an earlier file be words again: they are masked in every text of this process."""
    redaction._values.clear()


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail the session, and clean up, if a process that the tests started outlives them."""
    began = time.time()
    yield
    left = [identity for identity in _started_since(began, tmp_path_factory.getbasetemp()) if _stays(identity)]
    found = [
        f"{_test_of(identity)}: pid {identity.pid}, {' '.join(identity.command_line())[:200]}" for identity in left
    ]
    for identity in left:
        identity.stop(kill=True)
    assert not found, "The tests left processes behind:\n" + "\n".join(found)


@pytest.fixture(scope="session", autouse=True)
def forks_end(nothing_is_left_running: None) -> Iterator[None]:
    """End the process that forks for the tests' commands."""
    yield
    FORKS.close()


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


def _test_of(identity: ProcessIdentity) -> str:
    """The test in which a process was started: pytest names it in its environment, which processes inherit."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(identity.pid).environ().get("PYTEST_CURRENT_TEST", "a test unknown")
    return "a test unknown"


def _stays(identity: ProcessIdentity) -> bool:
    """Whether the process is there to stay; one that is ending gets the time that a busy machine needs for it."""
    deadline = time.monotonic() + 600
    while identity.is_alive():
        if time.monotonic() > deadline:
            return True
        time.sleep(0.1)
    return False


#: Takes down the labs in the folders it was given, once its standard input ends, which it does with the tests.
_GUARDIAN = """
import sys
from pathlib import Path
from tests.lab.lab import take_down
for folder in sys.stdin.read().splitlines():
    take_down(Path(folder))
"""


@pytest.fixture(scope="session")
def guard(nothing_is_left_running: None) -> Iterator[Guard]:
    """Name a lab's folder before the lab is up, and it is taken down even if the tests are killed or time out.

    A test that runs into its time limit ends the whole of pytest without any clean-up, so another process does it.
    """
    command = [sys.executable, "-c", _GUARDIAN]
    root = Path(__file__).parents[1]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True, cwd=root) as guardian:
        assert guardian.stdin is not None
        stdin = guardian.stdin

        def take_note(folder: Path) -> None:
            stdin.write(f"{folder}\n")
            stdin.flush()

        yield take_note
        stdin.close()
        assert guardian.wait(timeout=600) == 0


@contextlib.contextmanager
def _labs(tmp_path_factory: pytest.TempPathFactory, guard: Guard) -> Iterator[LabFactory]:
    with ExitStack() as folders:

        def start(options: LabOptions | None = None, **overrides: Any) -> TestLab:
            root = tmp_path_factory.mktemp("labs")
            given = {"root": root, **overrides}
            wanted = replace(TestLabOptions.of(options), **given) if options else TestLabOptions(**given)
            if wanted.machines:
                need_machines()
            guard(wanted.folder)
            folders.callback(take_down, wanted.folder)  # before it is up: a start that fails is cleared, too
            lab = TestLab.up(wanted)
            _STARTED.append(lab)
            return lab

        yield start


@pytest.fixture(scope="module")
def lab_factory(tmp_path_factory: pytest.TempPathFactory, guard: Guard) -> Iterator[LabFactory]:
    """Start labs that live as long as the tests of one module: ``lab_factory(LabOptions(…))`` or by keywords."""
    with _labs(tmp_path_factory, guard) as start:
        yield start


@pytest.fixture(scope="session")
def shared(guard: Guard) -> Iterator[Shared]:
    """What the files of a family share; another family finds nothing there."""
    yield SHARED
    SHARED.end()


@pytest.fixture(scope="session")
def shared_lab(shared: Shared, tmp_path_factory: pytest.TempPathFactory, guard: Guard) -> LabFactory:
    """Labs for tests that leave them as they were: the files of a family get the same one for the same options."""

    def shared_lab(**options: Any) -> TestLab:
        @contextlib.contextmanager
        def made() -> Iterator[TestLab]:
            with _labs(tmp_path_factory, guard) as start:
                yield start(**options)

        lab: TestLab = shared.get(("lab", *sorted(options.items())), made)
        return lab

    return shared_lab


@pytest.fixture(scope="session")
def machines() -> None:
    """For tests whose lab has machines: not run where it cannot have any."""
    need_machines()


@pytest.fixture(scope="module")
def disabled_lab(shared_lab: LabFactory) -> Lab:
    """Two workers in mode disabled, for tests that leave the workers alone; connectors of their own are fine.

    For one family: a lab that waits for a later file takes 6 % of a core meanwhile, a new one 6 s of CPU.
    """
    return shared_lab(name="disabled", mode=Mode.DISABLED, workers=2)


@pytest.fixture(scope="module")
def enabled_lab(shared_lab: LabFactory) -> Lab:
    """One worker in mode enabled, with the connectors of Connect's own tests, for tests as those before."""
    return shared_lab(name="enabled", mode=Mode.ENABLED, workers=1, test_connectors=True)


@pytest.fixture(scope="module")
def broker_lab(shared_lab: LabFactory) -> Lab:
    """A broker without workers, for tests with topics, groups and pipelines of their own."""
    return shared_lab(name="topics", workers=0)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory, guard: Guard) -> Iterator[Postgres]:
    """A PostgreSQL for tests that need no Kafka; each Airflow has a database of its own there."""
    folder = tmp_path_factory.mktemp("postgres")
    guard(folder)
    server = Postgres(folder, *free_ports(1), marker=marker(folder, secrets.token_hex(8)))
    server.prepare()
    process = spawn(server.start_command, log=server.log, pid_file=server.pid_file, cwd=folder)
    try:
        server.wait(process)
        yield server
    finally:
        process.stop()


@pytest.fixture(scope="session")
def spark_properties(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Properties of a Spark session on the loopback interface that takes a failed task up again, as a cluster does.

    Once, and not three times: many tests let a task fail for good, and each attempt takes a new Python worker.
    """
    folder = tmp_path_factory.mktemp("spark")
    ensure_spark_archive(print)
    return {
        "spark.master": "local[2,2]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "4",
        DAEMON_PROPERTY: DAEMON_MODULE,
        "spark.driver.extraJavaOptions": spark_jvm_options(),
    }


@pytest.fixture(scope="session")
def spark(nothing_is_left_running: None, spark_properties: dict[str, str]) -> Iterator[Any]:
    """A Spark session in this process; its JVM ends with the tests."""
    with spark_session(spark_properties) as session:
        yield session
