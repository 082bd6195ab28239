"""One real broker for each family of fault tests, without Connect; pipelines of their own keep the cases apart."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import json
import os
import queue
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import airflow_eos_provider
from airflow_eos_provider.connect.properties import set_property
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol import admission
from airflow_eos_provider.interval.topics.control_topic import ControlState
from airflow_eos_provider.interval.topics.ledger import complete_key
from airflow_eos_provider.interval.write.digest import Digest
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.read.reader import Reach, read_to_end
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.jars import jars
from airflow_eos_provider.lab.servers.broker import Broker
from airflow_eos_provider.lab.waiting import wait_for_broker
from airflow_eos_provider.local_processes import ProcessIdentity, spawn
from tests.faults.second_broker import SecondBroker, second_broker_of
from tests.lab.lab import TestLab, TestLabOptions, TestLabRecord, take_down
from tests.shared import Shared

_BROKER = {
    # Expired transactions are looked for twice a second instead of every ten seconds.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    # Rights can be taken away, and nobody needs one before.
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    # A broker that is suspended for a moment is not given up; one that is stopped and started again waits for the end.
    "broker.session.timeout.ms": "20000",
}

#: The folder that the package under test is imported from, in this process and in every actor's.
CODE = Path(airflow_eos_provider.__file__).resolve().parents[1]

MakePipeline = Callable[..., Pipeline]

#: Of the pipelines: the files of a family have one broker.
_NUMBERS = itertools.count()

#: An event that has not come by then does not come; a machine that does much else takes its time. Seconds.
DEADLINE_SECONDS = 300.0

#: Of transactions, milliseconds. None ends by it: who stops in one is fenced, however long the machine stalls. A test
#: that waits for the end of a transaction sets a shorter one.
NEVER_EXPIRES_MS = 300_000


@pytest.fixture(scope="module", autouse=True)
def control_transactions_of_this_process_do_not_expire() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admission, "TRANSACTION_TIMEOUT_MS", NEVER_EXPIRES_MS)
        yield


@pytest.fixture(scope="module")
def kafka(broker: Broker) -> KafkaSettings:
    """How to reach the broker."""
    return KafkaSettings.of(broker.bootstrap_servers)


@pytest.fixture(scope="module")
def broker(
    request: pytest.FixtureRequest,
    shared: Shared,
    tmp_path_factory: pytest.TempPathFactory,
    guard: Callable[[Path], None],
) -> Broker:
    """A real broker that is alone, for all files of a family.

    ``BROKER`` of a test file has further properties of its broker.
    """
    properties = {**_BROKER, **getattr(request.module, "BROKER", {})}
    what = ("broker", *sorted(properties.items()))
    started: Broker = shared.get(what, lambda: _started(properties, tmp_path_factory.mktemp("broker"), guard))
    return started


@contextlib.contextmanager
def _started(properties: Mapping[str, str], root: Path, guard: Callable[[Path], None]) -> Iterator[Broker]:
    """A lab of which only the broker is started."""
    options = TestLabOptions(name="faults", workers=0, root=root)
    record = TestLabRecord.draw(options)
    options.folder.mkdir(parents=True)
    record.write(options.folder)
    guard(options.folder)
    try:
        jars.ensure_jars(options.connect_version)
        lab = TestLab(options.folder, record)
        lab.prepare()
        broker = lab.broker
        content = broker.config.read_bytes()
        for name, value in properties.items():
            content = set_property(content, name, value)
        broker.config.write_bytes(content)
        process = spawn(broker.start_command, log=broker.log, pid_file=broker.pid_file, cwd=options.folder)
        wait_for_broker(broker.lab_client, process, broker.log)
        yield broker
    finally:
        take_down(options.folder)


@pytest.fixture(scope="module")
def second_broker(broker: Broker, make_pipeline: MakePipeline) -> Iterator[SecondBroker]:
    """A second broker, with :func:`~tests.faults.second_broker.place_topics` for a pipeline's data."""
    with second_broker_of(broker, make_pipeline()) as second:
        yield second


@pytest.fixture(scope="module")
def make_pipeline(kafka: KafkaSettings) -> MakePipeline:
    """Pipelines that share nothing, not even a group: a case cannot hold up another one's control topic."""

    def make(**fields: Any) -> Pipeline:
        number = next(_NUMBERS)
        topic = f"target-{number}"
        admin = AdminClient(kafka.confluent())
        new = NewTopic(topic, num_partitions=3)
        admin.create_topics([new])[topic].result()
        named = {"name": "p", "group_id": f"g{number}", "topic": topic, **fields}
        return Pipeline(kafka=kafka, **{"transaction_timeout_ms": NEVER_EXPIRES_MS, **named})

    return make


class Actor:
    """A driver or task of ``actors.py``, as its test sees it."""

    def __init__(self, server: Path, job: dict[str, Any]) -> None:
        self.name = f"{job['kind']} {job.get('task', '')}".strip()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(server))
        self._lines = self._socket.makefile("rw", encoding="utf-8")
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.seen: list[dict[str, Any]] = []
        self.tell(json.dumps(job))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        begun = self.wait_for("pid")
        assert begun["code"] == str(CODE), "an actor runs other code than its test"
        self.identity = ProcessIdentity(begun["pid"], begun["started_at"])  # it may be dead by now

    def tell(self, line: str) -> None:
        self._lines.write(line + "\n")
        self._lines.flush()

    def tell_if_there(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self.tell(line)

    def wait_for(self, *kinds: str, seconds: float = DEADLINE_SECONDS) -> dict[str, Any]:
        """The next event of one of these kinds; ``gone`` comes last of all, however the process ended."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                event = self._events.get(timeout=max(deadline - time.monotonic(), 0.01))
            except queue.Empty:
                raise AssertionError(f"The {self.name} did not tell {kinds} in {seconds} s, but {self.seen}") from None
            self.seen.append(event)
            assert event.get("error") != "a crash", event["text"]
            if any(kind in event for kind in kinds):
                return event
            if "struck" in event:  # too late for whoever waited for it
                continue
            assert "gone" not in event, f"The {self.name} ended before it reported {kinds}: {self.seen}"

    def wait_for_line(self, *words: str) -> str:
        """The next line that it reports with all of these words in it."""
        while True:
            line: str = self.wait_for("line")["line"]
            if all(word in line for word in words):
                return line

    def strike(self, how: signal.Signals, after: float, wakes_after: float) -> None:
        """Kill or pause it at some moment, wherever it is then; one that is paused wakes up later.

        Its test hears ``struck``, as Spark hears of a lost executor.
        """

        def hit() -> None:
            if self.identity.is_alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.identity.pid, how)
                self._events.put({"struck": how.name})
                if how == signal.SIGSTOP:
                    self._later(wakes_after, self.wake)

        self._later(after, hit)

    def wake(self) -> None:
        if self.identity.is_alive():
            with contextlib.suppress(ProcessLookupError):
                self.go_on()

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, act)
        timer.daemon = True
        timer.start()

    def hang_up(self) -> None:
        """Nobody listens to it any more, as when Airflow's worker is gone."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def wait_until_stopped(self) -> None:
        """Return when it waits at one of its stops."""
        self.wait_for("stopped")
        self.stands_still()

    def stands_still(self) -> None:
        """Return when the signal that it sent itself has come; one to go on would be lost before."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while psutil.Process(self.identity.pid).status() != psutil.STATUS_STOPPED:
            assert time.monotonic() < deadline, f"The {self.name} has not come to a stop"
            time.sleep(0.002)

    def go_on(self) -> None:
        os.kill(self.identity.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.identity.stop(kill=True)

    def end(self) -> dict[str, Any]:
        """How it ended: its last ``completed``, ``abandoned``, ``written`` or ``error``, or ``gone`` if by a signal."""
        last = self.wait_for("completed", "abandoned", "written", "error", "gone")
        if "gone" not in last:
            self.wait_for("gone")
        return last

    def steps(self) -> list[str]:
        return [event["step"] for event in self.seen if "step" in event]

    def _read(self) -> None:
        try:
            for line in self._lines:
                self._events.put(json.loads(line))
        except (OSError, ValueError):
            pass
        self._events.put({"gone": True})


class Stage(dict[str, Any]):
    """A stage as a driver reported it."""

    @property
    def tasks(self) -> list[int]:
        """The tasks that have something to do."""
        return [number for number, slices in enumerate(self["assignment"]) if slices]


class Story:
    """One pipeline, one source file, and whoever works on it.

    :ivar control_timeout_ms: timeout of a driver's control transactions.
    """

    def __init__(self, server: Path, pipeline: Pipeline, folder: Path) -> None:
        self.pipeline = pipeline
        self.control_timeout_ms = NEVER_EXPIRES_MS
        self._server = server
        self._folder = folder
        self._actors: list[Actor] = []
        self.run = run_of_day(1)

    # The actors

    def driver(self, *, tasks: int = 2, run: Run | None = None, lines: int = 40, slices: int = 4, **job: Any) -> Actor:
        """A driver; ``stops`` and ``dies`` as in ``actors.py``."""
        file = self.source(run or self.run, lines)
        slice_bytes = file.stat().st_size // slices + 1
        return self._start(
            "driver", run=(run or self.run).name, file=str(file), slice_bytes=slice_bytes, tasks=tasks, **job
        )

    def task(self, stage: Stage, number: int = 0, **job: Any) -> Actor:
        return self._start("task", stage=stage, task=number, **job)

    def abandoner(self, *, run: Run | None = None, **job: Any) -> Actor:
        return self._start("abandoner", run=(run or self.run).name, **job)

    def _start(self, kind: str, **job: Any) -> Actor:
        common = {"pipeline": self.pipeline.to_dict(), "control_timeout_ms": self.control_timeout_ms}
        actor = Actor(self._server, {"kind": kind, **common, **job})
        self._actors.append(actor)
        return actor

    def stage_of(self, driver: Actor) -> Stage:
        return self.stage_from(driver.wait_for("stage"))

    def stage_from(self, event: dict[str, Any]) -> Stage:
        return Stage(event["stage"])

    def write(self, stage: Stage, *, too_late: bool = False, **job: Any) -> None:
        """Run the stage's tasks, all at once, each to a good end; or to none, if they come too late."""
        tasks = [self.task(stage, number, **job) for number in stage.tasks]
        for end in [task.end() for task in tasks]:
            assert end.get("error") == "FencedError" if too_late else "written" in end, end

    def write_on(self, stage: Stage, task: Actor, number: int = 0) -> int:
        """See a task to a good end, through further attempts if it fails, as Spark does.

        :returns: how many attempts it took.
        """
        for attempt in range(1, 5):
            end = task.end()
            if "written" in end:
                return attempt
            task = self.task(stage, number)
        raise AssertionError(f"Task {number} failed four times, the last time: {end}")

    def finish_or_retry(self, driver: Actor) -> bool:
        """See a driver to its end, or its retry if it fails, as Airflow does.

        :returns: whether it did not need one.
        """
        if "completed" in self.drive(driver):
            return True
        self.complete()
        return False

    def drive(self, driver: Actor, *, too_late: bool = False) -> dict[str, Any]:
        """See to a driver's stage, until it ends or waits at a stop."""
        while True:
            event = driver.wait_for("stage", "stopped", "completed", "error", "gone")
            if "stopped" in event:
                driver.stands_still()
            if "stage" not in event:
                return event
            self.write(Stage(event["stage"]), too_late=too_late)
            driver.tell("the stage has ended")

    def complete(self, **job: Any) -> dict[str, Any]:
        """A driver without faults, from its start to its end, as a retry is."""
        end = self.drive(self.driver(**job))
        assert "completed" in end, end
        return end["completed"]  # type: ignore[no-any-return]

    def let_all_end(self) -> None:
        """Wake whoever still waits at a stop, and wait until nobody is left."""
        for actor in self._actors:
            actor.wake()
            actor.hang_up()
        deadline = time.monotonic() + DEADLINE_SECONDS
        for actor in self._actors:
            while actor.identity.is_alive():
                assert time.monotonic() < deadline, f"The {actor.name} does not end: {actor.seen}"
                actor.wake()
                time.sleep(0.02)

    def end_all(self) -> None:
        for actor in self._actors:
            actor.kill()

    # The truth

    def source(self, run: Run, lines: int = 40) -> Path:
        """The source of a run: lines that no other run has."""
        file = self._folder / f"{run.interval_name.replace('/', '_')}.txt"
        if not file.exists():
            file.write_text("".join(f'{{"run":"{run.interval_name}","line":{n}}}\n' for n in range(lines)))
        return file

    def swap_lines(self, one: int, other: int) -> None:
        """Let two lines of one length change places in the source, which looks no different from outside."""
        file = self.source(self.run)
        seen = file.stat()
        lines = file.read_bytes().splitlines(keepends=True)
        assert len(lines[one]) == len(lines[other])
        lines[one], lines[other] = lines[other], lines[one]
        file.write_bytes(b"".join(lines))
        os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))

    def drained(self, *, stable_only: bool = False) -> Counter[bytes]:
        """What a reader of committed records gets."""
        assert self.pipeline.topic is not None
        read = read_to_end(self.pipeline.kafka, self.pipeline.topic, Reach(stable_only=stable_only))
        return Counter(record.value or b"" for record in read.records)

    def expected(self, *runs: Run) -> Counter[bytes]:
        return Counter(line for run in runs or (self.run,) for line in self.source(run).read_bytes().splitlines())

    def completes(self, run: Run | None = None) -> list[dict[str, Any]]:
        """Every ``complete`` record of a run that the log has."""
        key = complete_key(run or self.run)
        records = read_to_end(self.pipeline.kafka, self.pipeline.ledger_topic).records
        return [json.loads(record.value) for record in records if record.key == key and record.value is not None]

    def plans(self) -> list[bytes]:
        """Every plan of the run that the log has."""
        key = f"connector-{self.run.name}".encode()
        records = read_to_end(self.pipeline.kafka, self.pipeline.control_topic).records
        return [record.value for record in records if record.key == key and record.value is not None]

    def control(self) -> ControlState:
        state = ControlState()
        state.apply(read_to_end(self.pipeline.kafka, self.pipeline.control_topic).records)
        return state

    def open_transactions(self) -> tuple[str, ...]:
        with TransactionsClient(self.pipeline.kafka) as client:
            return client.open_transactions(self.pipeline.group_id + "-")

    def wait_for_open_transactions(self) -> None:
        """Those that the dead have left are ended by the broker, at the latest by their timeout."""
        deadline = time.monotonic() + 300
        while self.open_transactions():
            assert time.monotonic() < deadline, self.open_transactions()
            time.sleep(0.2)

    def require_exactly_once(self, *runs: Run) -> None:
        """The oracle: the drain is the source, `complete` stands once, and nothing is left open or on record."""
        assert self.drained() == self.expected(*runs)
        for run in runs or (self.run,):
            (complete,) = self.completes(run)
            assert complete["records"] == self.expected(run).total()
            assert complete["digest"] == digest_of(self.pipeline, self.expected(run))
        assert self.control().runs == {}
        self.require_none_open()

    def require_no_duplicate(self) -> None:
        assert max(self.drained().values(), default=0) <= 1

    def require_none_open(self) -> None:
        """No transaction is left open; one that is decided may be seen for a moment after its markers are."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        with TransactionsClient(self.pipeline.kafka) as client:
            while left := [t for t in client.list(f"{self.pipeline.group_id}-") if t.state.is_open]:
                assert all(t.state is not TransactionState.ONGOING for t in left), left
                assert time.monotonic() < deadline, left
                time.sleep(0.02)


def digest_of(pipeline: Pipeline, values: Counter[bytes]) -> str:
    digest = Digest()
    for value in values.elements():
        digest.add(pipeline.topic or "", None, value)
    return digest.text


def run_of_day(day: int, days: int = 1) -> Run:
    start = datetime(2013, 1, 1, tzinfo=UTC) + timedelta(days=day - 1)
    return Run("p", Interval(start, start + timedelta(days=days)))


@pytest.fixture(scope="module")
def actor_server(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server that forks actors."""
    log = tmp_path_factory.mktemp("actors") / "server.log"
    server: Path = shared.get("actors", lambda: _serving_actors(log))
    return server


@contextlib.contextmanager
def _serving_actors(log: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="eos-"))  # a socket's path must be short
    command = [sys.executable, str(Path(__file__).with_name("actors.py")), str(folder / "s")]
    process = spawn(command, log=log, env={"PYTHONPATH": str(CODE)})
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (folder / "s").exists():
            assert process.is_alive(), log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield folder / "s"
    finally:
        process.stop(kill=True)
        shutil.rmtree(folder)


@pytest.fixture
def story(
    request: pytest.FixtureRequest, actor_server: Path, make_pipeline: MakePipeline, tmp_path: Path
) -> Iterator[Story | SideBySide]:
    if request.node.get_closest_marker("side_by_side"):
        yield request.getfixturevalue("side_by_side")
        return
    begun = Story(actor_server, make_pipeline(ledger_partitions=2), tmp_path)
    yield begun
    begun.end_all()


class SideBySide:
    """The tests of a module that is marked ``side_by_side``: some of them at a time, each with a story of its own.

    They mostly wait, for brokers and for each other's processes. Each test then takes its own outcome.

    :param tests: of the module, those that are selected.
    :param new_story: makes a story.
    """

    AT_ONCE = 4

    def __init__(self, tests: Sequence[pytest.Function], new_story: Callable[[], Story]) -> None:
        self._new_story = new_story
        self._pool = ThreadPoolExecutor(self.AT_ONCE)
        self._outcomes = {test.nodeid: self._pool.submit(self._run, test) for test in tests}

    def outcome(self, test: pytest.Function) -> None:
        """Return when the test has passed, and raise what it has raised."""
        self._outcomes[test.nodeid].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _run(self, test: pytest.Function) -> None:
        story = self._new_story()
        values = {"story": story, "days": run_of_day, **(test.callspec.params if hasattr(test, "callspec") else {})}
        try:
            test.obj(**{name: values[name] for name in inspect.signature(test.obj).parameters})
        finally:
            story.end_all()


@pytest.fixture(scope="module")
def side_by_side(
    request: pytest.FixtureRequest,
    actor_server: Path,
    make_pipeline: MakePipeline,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SideBySide]:
    """The selected tests of the module, which all run from here on."""

    def new_story() -> Story:
        pipeline = make_pipeline(ledger_partitions=2)
        return Story(actor_server, pipeline, tmp_path_factory.mktemp(pipeline.group_id))

    tests = [i for i in request.session.items if isinstance(i, pytest.Function) and i.path == request.path]
    running = SideBySide(tests, new_story)
    yield running
    running.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that runs beside others is under way; it has their outcome, not a call of its own."""
    if pyfuncitem.get_closest_marker("side_by_side") is None:
        return None
    pyfuncitem.funcargs["story"].outcome(pyfuncitem)
    return True


@pytest.fixture(scope="session")
def days() -> Callable[..., Run]:
    """The run of some days of January 2013: ``days(first, how_many)``."""
    return run_of_day
