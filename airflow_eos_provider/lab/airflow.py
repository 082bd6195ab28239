"""``airflow standalone`` in a folder of its own, with every one of its processes known, so that none is left behind.

The components of standalone and the tasks that they run live in process groups and sessions of their own, so neither a
signal to a group nor the death of the parent ends them all. Three things find them: the tree below the started
process, written to a file while it lives; the session that it leads; and a variable with a value of its own that all
inherit (Airflow renames some of its processes, which overwrites what can be seen of it). What a task started on purpose
to outlive it, such as a Connect worker that a roll restarted, has a clean environment and is left alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from airflow_eos_provider.errors import EosError, UnreachableError
from airflow_eos_provider.lab.airflow_rest import AirflowRest
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.processes import ProcessIdentity, identify, spawn

#: Inherited by every process of one Airflow of the lab; its value is unlike that of any other.
MARKER_VARIABLE = "EOS_LAB_AIRFLOW"

COMPONENTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")
USERNAME = "admin"

_RECORD = "airflow.json"
_PASSWORDS = "passwords.json"
_TRACK_EVERY_SECONDS = 2.0
_STOP_GRACE_SECONDS = 10.0

Progress = Callable[[str], None]


class AirflowNotHealthyError(EosError):
    """Airflow did not come up."""


@dataclass(frozen=True, slots=True)
class AirflowRecord:
    """What is written down about one Airflow, before its first process starts and again when it has new ones.

    :param marker: value of :data:`MARKER_VARIABLE`.
    :param root: ``airflow standalone`` itself, which leads the session of all the others.
    :param processes: all that were seen so far and lived at the last look.
    """

    marker: str
    url: str
    root: ProcessIdentity | None = None
    processes: tuple[ProcessIdentity, ...] = ()

    def write(self, folder: Path) -> None:
        document = {
            "marker": self.marker,
            "url": self.url,
            "root": None if self.root is None else _to_document(self.root),
            "processes": [_to_document(process) for process in self.processes],
        }
        temporary = folder / f"{_RECORD}.new"
        temporary.write_text(json.dumps(document, indent=1), encoding="utf-8")
        temporary.replace(folder / _RECORD)

    @classmethod
    def read(cls, folder: Path) -> AirflowRecord | None:
        try:
            document = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
            root = document["root"]
            return cls(
                marker=str(document["marker"]),
                url=str(document["url"]),
                root=None if root is None else _from_document(root),
                processes=tuple(_from_document(process) for process in document["processes"]),
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise EosError(
                f"{folder / _RECORD} is damaged, so it cannot be told which processes belong to that Airflow.",
                remedy=f"Look for processes with the variable {MARKER_VARIABLE}, end them, and remove the file.",
            ) from error


@dataclass(frozen=True, slots=True)
class AirflowOptions:
    """How an Airflow of the lab is started.

    :param folder: everything of this Airflow: AIRFLOW_HOME, database, logs.
    :param dags_folder: the DAG files.
    :param connections: JSON by connection id; may hold secrets.
    :param environment: further variables.
    :param deadline_seconds: how long the start may take.
    """

    folder: Path
    dags_folder: Path
    connections: Mapping[str, str] = field(default_factory=dict, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    deadline_seconds: float = 240.0


class AirflowLab:
    """A running ``airflow standalone``: start it by :meth:`start`, end it by :meth:`stop`.

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

    @property
    def log(self) -> Path:
        return self.folder / "standalone.log"

    @property
    def password_file(self) -> Path:
        return self.folder / _PASSWORDS

    @classmethod
    def start(cls, options: AirflowOptions, progress: Progress = lambda _: None) -> AirflowLab:
        """Start Airflow and wait until each of its components says that it is healthy.

        What an earlier, killed start left in this folder is ended first.

        :param progress: receives what is awaited, at least every two seconds.
        :raises AirflowNotHealthyError: it ended, or was not healthy by the deadline; nothing of it is left.
        """
        folder = options.folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        cls.clear(folder)
        port, worker_log_port, trigger_log_port = free_ports(3)
        record = AirflowRecord(marker=secrets.token_hex(16), url=f"http://127.0.0.1:{port}")
        record.write(folder)
        lab = cls(folder, record)
        lab._write_password()
        environment = lab._environment(options, port, worker_log_port, trigger_log_port)
        try:
            airflow = Path(sys.executable).parent / "airflow"
            root = spawn([str(airflow), "standalone"], log=lab.log, cwd=folder, env=environment)
            lab._record = replace(record, root=root)
            lab._remember([root])
            lab._tracker.start()
            lab._wait_healthy(root, options.deadline_seconds, progress)
        except BaseException:
            lab.stop()
            raise
        return lab

    @classmethod
    def load(cls, folder: Path) -> AirflowLab | None:
        """The Airflow that an earlier command started in this folder; None if none of its processes runs."""
        record = AirflowRecord.read(folder)
        if record is None:
            return None
        lab = cls(folder.resolve(), record)
        return lab if lab.processes() else None

    @staticmethod
    def clear(folder: Path) -> int:
        """End whatever an earlier Airflow of this folder left running.

        :returns: how many processes were found.
        """
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

        :returns: how many processes there were.
        """
        self._stopping.set()
        if self._tracker.is_alive():
            self._tracker.join(timeout=10)
        ended: set[ProcessIdentity] = set()
        # A component that ends may start another process in its last moments, hence the second and third look.
        for round_number in range(3):
            living = self.processes()
            if not living:
                break
            ended.update(living)
            _end_all(living, grace_seconds=_STOP_GRACE_SECONDS if round_number == 0 else 1.0)
        return len(ended)

    def _environment(
        self, options: AirflowOptions, port: int, worker_log_port: int, trigger_log_port: int
    ) -> dict[str, str]:
        url = f"http://127.0.0.1:{port}"
        binaries = str(Path(sys.executable).parent)
        return {
            "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            MARKER_VARIABLE: self._record.marker,
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(options.dags_folder.resolve()),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.password_file),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
            # One process per task that runs at once; the demo runs one.
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API__BASE_URL": url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            # Several labs live side by side, so these need ports of their own as well.
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(worker_log_port),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(trigger_log_port),
            "NO_PROXY": "127.0.0.1,localhost",
            **{f"AIRFLOW_CONN_{name.upper()}": value for name, value in options.connections.items()},
            **options.environment,
        }

    def _write_password(self) -> None:
        # Written before the start: standalone prints a password that it had to make itself, into the log.
        descriptor = os.open(self.password_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps({USERNAME: secrets.token_urlsafe(12)}) + "\n")

    def _wait_healthy(self, root: ProcessIdentity, deadline_seconds: float, progress: Progress) -> None:
        started = time.monotonic()
        with self.rest() as rest:
            while True:
                waiting_for = _unhealthy(rest)
                elapsed = time.monotonic() - started
                if not waiting_for:
                    return
                if not root.is_alive():
                    self._fail("airflow standalone ended while it was starting.")
                if elapsed > deadline_seconds:
                    self._fail(f"Airflow is not healthy after {elapsed:.0f} s: waiting for {', '.join(waiting_for)}.")
                progress(f"Airflow starts ({elapsed:.0f} s): waiting for {', '.join(waiting_for)}")
                time.sleep(1.0)

    def _fail(self, found: str) -> None:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-25:] if self.log.exists() else []
        raise AirflowNotHealthyError(
            f"{found} The end of {self.log}:\n" + "\n".join(lines),
            remedy=f"Read {self.log} and the logs in {self.home}.",
        )

    def _track(self) -> None:
        while not self._stopping.wait(_TRACK_EVERY_SECONDS):
            with contextlib.suppress(psutil.Error, OSError):
                self._look()

    def _look(self) -> None:
        """Find this Airflow's processes: those that carry the marker, and the tree below every one that is known."""
        with self._lock:
            known = [process for process in self._record.processes if process.is_alive()]
        found = dict.fromkeys(known)
        found.update(dict.fromkeys(_descendants(known)))
        found.update(dict.fromkeys(_marked(self._record.marker)))
        if self._record.root is not None:
            found.update(dict.fromkeys(_session_of(self._record.root)))
        self._remember(found)

    def _remember(self, processes: Iterable[ProcessIdentity]) -> None:
        with self._lock:
            new = tuple(processes)
            if new != self._record.processes:
                self._record = replace(self._record, processes=new)
                self._record.write(self.folder)


def _to_document(process: ProcessIdentity) -> dict[str, float]:
    return {"pid": process.pid, "started_at": process.started_at}


def _from_document(document: Mapping[str, Any]) -> ProcessIdentity:
    return ProcessIdentity(int(document["pid"]), float(document["started_at"]))


def _unhealthy(rest: AirflowRest) -> list[str]:
    try:
        health = rest.health()
    except EosError:
        return ["api-server"]
    return [name for name in COMPONENTS if not _is_healthy(health.get(name))]


def _is_healthy(component: Any) -> bool:
    return isinstance(component, dict) and component.get("status") == "healthy"


def _descendants(roots: Iterable[ProcessIdentity]) -> list[ProcessIdentity]:
    """The processes below these, except sessions that a task began on purpose with an environment of their own."""
    children: dict[int, list[int]] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            children.setdefault(process.ppid(), []).append(process.pid)
    found = []
    waiting = [root.pid for root in roots]
    while waiting:
        for pid in children.get(waiting.pop(), []):
            identity = identify(pid)
            if identity is None or _outlives(pid):
                continue
            found.append(identity)
            waiting.append(pid)
    return found


def _outlives(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid and MARKER_VARIABLE not in psutil.Process(pid).environ()
    except (ProcessLookupError, psutil.Error):
        return False


def _session_of(leader: ProcessIdentity) -> list[ProcessIdentity]:
    """The leader's session. Airflow's renamed processes show no environment and may have lost their parent.

    Empty when the leader is gone: then the number of the session proves nothing any more.
    """
    if not leader.is_alive():
        return []
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError):
            identity = identify(pid) if os.getsid(pid) == leader.pid else None
            if identity is not None:
                found.append(identity)
    return found


def _marked(marker: str) -> list[ProcessIdentity]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARKER_VARIABLE) == marker:
                identity = identify(process.pid)
                if identity is not None:
                    found.append(identity)
    return found


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


def wait_for_dag(lab: AirflowLab, dag_id: str, deadline_seconds: float, progress: Progress = lambda _: None) -> None:
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
                    + "".join(f"\n{error}" for error in errors),
                    remedy=f"Read the DAG processor's log in {lab.home / 'logs'}.",
                )
            progress(f"Airflow reads its DAG files ({elapsed:.0f} s)")
            time.sleep(1.0)
