"""Runs an Airflow in a folder of its own and keeps track of its processes, so that none is left behind.

Its components are started one by one, not by ``airflow standalone``: so each has its own log, and if one ends or does
not start, the error shows the end of that log. Its database is the lab's PostgreSQL.

The tasks that the components run live in process groups and sessions of their own, so a signal to a group does not end
them all, nor does the death of the parent. Three things find them: the tree below each started process, written to a
file while it lives; the session that it leads; and a variable with a value of its own that all inherit (Airflow renames
some of its processes, which overwrites what can be seen of it). What a task started on purpose to outlive it, such as a
Connect worker that a roll restarted, has a clean environment and is left alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from airflow_eos_provider.errors import EosError, UnreachableError
from airflow_eos_provider.lab.files import write_atomically
from airflow_eos_provider.lab.ownership import log_tail
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.lab.servers.airflow_rest import AirflowRest
from airflow_eos_provider.lab.servers.postgres import Postgres
from airflow_eos_provider.lab.waiting import STARTUP_SECONDS, Starting, wait_until_ready
from airflow_eos_provider.processes import INHERITED_VARIABLES, ProcessIdentity, from_pid_file, identify, spawn

#: Inherited by every process of one Airflow of the lab; its value is unlike that of any other.
MARKER_VARIABLE = "EOS_LAB_AIRFLOW"

#: Airflow's components, by the commands that start them.
COMPONENTS = ("api-server", "scheduler", "triggerer", "dag-processor")
USERNAME = "admin"

#: Whose health each entry of Airflow's own answer reports.
_HEALTH = {
    "metadatabase": "postgres",
    "scheduler": "scheduler",
    "triggerer": "triggerer",
    "dag_processor": "dag-processor",
}

#: Airflow imports it in each of its processes. What a start makes stays, so garbage is looked for seldom: that took a
#: fifth of a start's CPU. The scheduler forks a process for each task, and the DAG processor one for each file: what
#: all of these need takes 0.3 s of CPU there, or once here. No Airflow is imported, whose own modules are only just
#: being loaded.
_LOCAL_SETTINGS = """\
import gc
import sys

__all__ = []  # no settings

gc.set_threshold(100_000, 50, 100)

if not {"scheduler", "dag-processor"}.isdisjoint(sys.argv):
    import airflow_eos_provider.offsets.verbs.apply
    import airflow_eos_provider.preflight
    import airflow_eos_provider.rollout.controller
"""

_RECORD = "airflow.json"
_PASSWORDS = "passwords.json"
_TRACK_EVERY_SECONDS = 2.0
_STOP_GRACE_SECONDS = 10.0
_HEALTH_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class AirflowRecord:
    """What is written down about one Airflow, before its first process starts and again when it has new ones.

    :param roots: the processes that were started here; each leads the session of those that it started.
    :param processes: all that were seen so far and lived at the last look.
    """

    marker: str
    url: str
    roots: tuple[ProcessIdentity, ...] = ()
    processes: tuple[ProcessIdentity, ...] = ()

    def write(self, folder: Path) -> None:
        write_atomically(folder / _RECORD, json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, folder: Path) -> AirflowRecord | None:
        try:
            document = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
            roots, processes = (
                tuple(ProcessIdentity(**process) for process in document[name]) for name in ("roots", "processes")
            )
            return cls(document["marker"], document["url"], roots, processes)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise EosError(
                f"{folder / _RECORD} is damaged, so it is unknown which processes belong to that Airflow.",
                remedy=f"Look for processes with the variable {MARKER_VARIABLE}, end them, and remove the file.",
            ) from error


@dataclass(frozen=True, slots=True)
class AirflowOptions:
    """How an Airflow of the lab is started.

    :param folder: everything of this Airflow but its database: AIRFLOW_HOME, logs.
    :param postgres: a server that runs; this Airflow gets a database of its own there, named after the folder.
    :param connections: JSON by connection id; may hold secrets.
    :param components: of :data:`COMPONENTS` those that are started; pages and REST API need the ``api-server`` alone.
    :param path: of its address, as behind a proxy that serves more: ``/tools/air``.
    """

    folder: Path
    dags_folder: Path
    postgres: Postgres
    connections: Mapping[str, str] = field(default_factory=dict, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    components: Sequence[str] = COMPONENTS
    path: str = ""


class AirflowLab:
    """A running Airflow: start it by :meth:`start`, end it by :meth:`stop`.

    :ivar url: address of UI and REST API; the user is ``admin``, the password is in :attr:`password_file`.
    """

    def __init__(self, folder: Path, record: AirflowRecord) -> None:
        self.folder = folder
        self.url = record.url
        self._record = record
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._tracker = threading.Thread(target=self._track, name="airflow-processes", daemon=True)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def log(self, component: str) -> Path:
        """The log of ``migration`` or of one of :data:`COMPONENTS`."""
        return self.folder / f"{component}.log"

    @property
    def password_file(self) -> Path:
        return self.folder / _PASSWORDS

    @classmethod
    def start(cls, options: AirflowOptions) -> AirflowLab:
        """Start Airflow and wait until each of its components says that it is healthy.

        What an earlier, killed start left in this folder is ended first. Its database is kept.

        :raises EosError: a component, or the database, ended or does not get ready; it is named with the end of its
            own log, and nothing of this Airflow is left.
        """
        folder = options.folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        cls.clear(folder)
        port, worker_log_port, trigger_log_port = free_ports(3)
        record = AirflowRecord(marker=secrets.token_hex(16), url=f"http://127.0.0.1:{port}{options.path}")
        record.write(folder)
        lab = cls(folder, record)
        lab._write_password()
        lab._write_local_settings()
        environment = lab._environment(options, port, worker_log_port, trigger_log_port)
        lab._tracker.start()
        try:
            lab._migrate(options.postgres, environment)
            parts = [_postgres_part(options.postgres)]
            parts += [lab.start_component(name, environment) for name in options.components]
            with lab.rest() as rest:
                wait_until_ready(parts, lambda: _unhealthy(rest, options.components), poll_seconds=_HEALTH_POLL_SECONDS)
        except BaseException:
            lab.stop()
            raise
        return lab

    @staticmethod
    def clear(folder: Path) -> int:
        """End whatever an earlier Airflow of this folder left running; returns how many processes were found."""
        record = AirflowRecord.read(folder)
        return AirflowLab(folder, record).stop() if record is not None else 0

    def rest(self) -> AirflowRest:
        """A REST client with the rights of the admin user."""
        passwords = json.loads(self.password_file.read_text(encoding="utf-8"))
        return AirflowRest(self.url, USERNAME, passwords[USERNAME])

    def processes(self) -> tuple[ProcessIdentity, ...]:
        """Every living process of this Airflow, children before parents."""
        self._look()
        with self._lock:
            return tuple(process for process in reversed(self._record.processes) if process.is_alive())

    def stop(self) -> int:
        """End every process of this Airflow: all are asked first, and after the grace ended by force.

        Returns how many processes there were.
        """
        self._stopping.set()
        if self._tracker.is_alive():
            self._tracker.join(timeout=10)
        ended: set[ProcessIdentity] = set()
        led = [root for root in self._record.roots if root.is_alive()]
        # A component that ends may start another process in its last moments, hence the second and third look. Its
        # session outlives it then: a number that processes still have is not given to a new one (fork(2), setsid(2)).
        for round_number in range(3):
            living = dict.fromkeys((*self.processes(), *(one for root in led for one in _session_of(root))))
            if not living:
                break
            ended.update(living)
            _end_all(living, grace_seconds=_STOP_GRACE_SECONDS if round_number == 0 else 1.0)
        return len(ended)

    def _environment(
        self, options: AirflowOptions, port: int, worker_log_port: int, trigger_log_port: int
    ) -> dict[str, str]:
        binaries = str(Path(sys.executable).parent)
        return {
            "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            MARKER_VARIABLE: self._record.marker,
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": options.postgres.url(database_name(self.folder)),
            "AIRFLOW__CORE__DAGS_FOLDER": str(options.dags_folder.resolve()),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.password_file),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            # One process per task that runs at once; the demo runs one.
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            # The database has just been migrated; each component would read all migrations once more.
            "AIRFLOW__DATABASE__CHECK_MIGRATIONS": "False",
            # On a busy machine a call takes longer than the default of 5 s, and five in a row cost a task a try.
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
            # New and changed files are looked for, and parsed at once; others need not be parsed every half minute.
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
            # Several labs live side by side, so these need ports of their own as well.
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(worker_log_port),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(trigger_log_port),
            "NO_PROXY": "127.0.0.1,localhost",
            **{f"AIRFLOW_CONN_{name.upper()}": value for name, value in options.connections.items()},
            **options.environment,
        }

    def _write_password(self) -> None:
        # Written before the start: Airflow prints a password that it had to make itself, into the log.
        write_atomically(self.password_file, json.dumps({USERNAME: secrets.token_urlsafe(12)}) + "\n")

    def _write_local_settings(self) -> None:
        folder = self.home / "config"  # Airflow looks there
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "airflow_local_settings.py").write_text(_LOCAL_SETTINGS, encoding="utf-8")

    def _migrate(self, postgres: Postgres, environment: Mapping[str, str]) -> None:
        """Make the database and its tables."""
        _postgres_part(postgres)
        postgres.create_database(database_name(self.folder))
        log = self.log("migration")
        # A child of this process, not spawned to outlive it: its exit code is asked for.
        inherited = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
        with log.open("ab") as output:
            process = subprocess.Popen(
                [_airflow_program(), "db", "migrate"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**inherited, **environment},
                start_new_session=True,
            )
        migration = Starting("The migration of Airflow's database", self._remember_root(process.pid), log)
        try:
            code = process.wait(STARTUP_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise EosError(f"{migration.name} takes too long. {migration.end_of_log()}") from error
        if code != 0:
            _postgres_part(postgres)  # if the server has ended, it is the cause
            raise EosError(
                f"{migration.name} ended with exit code {code}. {migration.end_of_log()}", remedy=f"Read {log}."
            )

    def start_component(self, name: str, environment: Mapping[str, str]) -> Starting:
        """Start one component, which :meth:`stop` ends; it is not waited for."""
        log = self.log(name)
        process = spawn([_airflow_program(), name], log=log, cwd=self.folder, env=environment)
        return Starting(name, self._remember_root(process.pid, process), log)

    def _remember_root(self, pid: int, process: ProcessIdentity | None = None) -> ProcessIdentity:
        """Write down a process right after its start, before anything else can happen to this one."""
        root = process or identify(pid) or ProcessIdentity(pid, time.time())
        with self._lock:
            self._record = replace(
                self._record, roots=(*self._record.roots, root), processes=(*self._record.processes, root)
            )
            self._record.write(self.folder)
        return root

    def _track(self) -> None:
        while not self._stopping.wait(_TRACK_EVERY_SECONDS):
            with contextlib.suppress(psutil.Error, OSError):
                self._look()

    def _look(self) -> None:
        """Find this Airflow's processes: those that carry the marker, and the tree below every one that is known."""
        with self._lock:
            known = [
                process
                for process in self._record.processes
                # One that was seen between fork and exec had its parent's environment; it may be meant to outlive us.
                if process.is_alive() and not _has_another_environment(process.pid)
            ]
        living = [root for root in self._record.roots if root.is_alive()]  # else the session's number proves nothing
        sessions = (one for root in living for one in _session_of(root))
        self._remember(dict.fromkeys((*known, *_descendants(known), *_marked(self._record.marker), *sessions)))

    def _remember(self, processes: Iterable[ProcessIdentity]) -> None:
        with self._lock:
            # A root that was started since the look began is not to be forgotten.
            living = (root for root in self._record.roots if root.is_alive())
            new = tuple(dict.fromkeys((*processes, *living)))
            if new != self._record.processes:
                self._record = replace(self._record, processes=new)
                self._record.write(self.folder)


def _postgres_part(postgres: Postgres) -> Starting:
    """The database's server: Airflow does not come up without it, and then it is to be named."""
    process = from_pid_file(postgres.pid_file)
    if process is None or not postgres.answers():
        raise EosError(
            f"postgres at {postgres.address}, the server of Airflow's database, does not run. "
            f"The end of {postgres.log}:\n{log_tail(postgres.log)}",
            remedy=f"Read {postgres.log}.",
        )
    return Starting(postgres.name, process, postgres.log)


def _airflow_program() -> str:
    return str(Path(sys.executable).parent / "airflow")


def database_name(folder: Path) -> str:
    """The same for every start in this folder, and another one for each other Airflow on the same server."""
    return f"airflow_{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"


def _unhealthy(rest: AirflowRest, components: Collection[str]) -> list[str]:
    """Whose health Airflow does not report; only the api-server while it does not answer: the rest is unknown then.

    :param components: those that were started; with a scheduler, the api-server has to answer tasks as well.
    """
    try:
        health = rest.health()
        if "scheduler" in components:
            rest.execution_health()
    except EosError:
        return ["api-server"]
    asked = {"postgres", *components}
    return [part for name, part in _HEALTH.items() if part in asked and not _is_healthy(health.get(name))]


def _is_healthy(component: Any) -> bool:
    return isinstance(component, dict) and component.get("status") == "healthy"


def _descendants(roots: Iterable[ProcessIdentity]) -> Iterator[ProcessIdentity]:
    """The processes below these, except sessions that a task began on purpose with an environment of their own."""
    children: dict[int, list[int]] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            children.setdefault(process.ppid(), []).append(process.pid)
    waiting = [root.pid for root in roots]
    while waiting:
        for pid in children.get(waiting.pop(), []):
            identity = identify(pid)
            if identity is not None and not _outlives(pid):
                yield identity
                waiting.append(pid)


def _outlives(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid and MARKER_VARIABLE not in psutil.Process(pid).environ()
    except (ProcessLookupError, psutil.Error):
        return False


def _has_another_environment(pid: int) -> bool:
    """Whether it leads a session with an environment that shows; a process that renames itself shows none."""
    try:
        return _outlives(pid) and bool(psutil.Process(pid).environ())
    except psutil.Error:
        return False


def _session_of(leader: ProcessIdentity) -> Iterator[ProcessIdentity]:
    """The leader's session. Airflow's renamed processes show no environment and may have lost their parent.

    None when another process has the leader's number by now: the session of this number is another one.
    """
    if identify(leader.pid) is not None and not leader.is_alive():
        return
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(pid) == leader.pid and (identity := identify(pid)) is not None:
                yield identity


def _marked(marker: str) -> Iterator[ProcessIdentity]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARKER_VARIABLE) == marker and (identity := identify(process.pid)) is not None:
                yield identity


def _end_all(processes: Iterable[ProcessIdentity], *, grace_seconds: float) -> None:
    processes = tuple(processes)
    for process in processes:
        if process.is_alive():
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                psutil.Process(process.pid).terminate()
    deadline = time.monotonic() + grace_seconds
    while time.monotonic() < deadline and any(process.is_alive() for process in processes):
        time.sleep(0.1)
    for process in processes:
        process.stop(kill=True)


def wait_for_dag(lab: AirflowLab, dag_id: str, deadline_seconds: float) -> None:
    """Wait until the DAG processor has stored a DAG.

    :raises UnreachableError: it is not there by the deadline; with the errors of the DAG files, if there are any.
    """
    started = time.monotonic()
    with lab.rest() as rest:
        while not rest.dag_is_known(dag_id):
            elapsed = time.monotonic() - started
            errors = rest.import_errors()
            if errors or elapsed > deadline_seconds:
                raise UnreachableError(
                    f"Airflow does not know the DAG {dag_id} after {elapsed:.0f} s."
                    + "".join(f"\n{error}" for error in errors)
                    + f" The end of {lab.log('dag-processor')}:\n{log_tail(lab.log('dag-processor'))}",
                    remedy=f"Read that log, and the DAG files' own in {lab.home / 'logs'}.",
                )
            time.sleep(1.0)
