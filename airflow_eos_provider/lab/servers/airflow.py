"""Runs an Airflow in a folder of its own and finds its processes again, so that none is left behind.

Its components are started one by one, not by ``airflow standalone``: so each has its own log, and if one ends or does
not start, the error shows the end of that log. Its database is the lab's PostgreSQL.

A process belongs to it if it inherited a variable with a value of its own, or if a component leads its session: Airflow
renames some of its processes, which overwrites their variables, and hides those of tasks from all but root. What a task
started to outlive it, such as a Connect worker that a roll restarted, has a session and an environment of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from airflow_eos_provider.errors import EosError, UnreachableError
from airflow_eos_provider.lab.files import write_atomically
from airflow_eos_provider.lab.lab_processes import log_tail
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.lab.servers.airflow_rest import AirflowRest
from airflow_eos_provider.lab.servers.postgres import Postgres
from airflow_eos_provider.lab.waiting import STARTUP_SECONDS, Starting, run_to_end, wait_until_ready
from airflow_eos_provider.local_processes import ProcessIdentity, from_pid_file, identify, spawn, stop_side_by_side

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
    import confluent_kafka
"""

_RECORD = "airflow.json"
_PASSWORDS = "passwords.json"
_HEALTH_POLL_SECONDS = 0.5

#: How long processes are given to end before they are killed, seconds, and how often those left over are looked for: a
#: component that ends may start another process in its last moments.
_STOP_GRACES = (10.0, 1.0, 1.0)


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

    def __init__(self, folder: Path, marker: str, url: str) -> None:
        self.folder = folder
        self.url = url
        self._marker = marker

    @classmethod
    def load(cls, folder: Path) -> AirflowLab | None:
        """The Airflow that was started in this folder last."""
        try:
            record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
            return cls(folder, record["marker"], record["url"])
        except FileNotFoundError:
            return None
        except (ValueError, LookupError, TypeError) as error:
            raise EosError(
                f"{folder / _RECORD} is damaged, so it is unknown which processes belong to that Airflow.",
                remedy=f"Look for processes with the variable {MARKER_VARIABLE}, end them, and remove the file.",
            ) from error

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
        record = {"marker": secrets.token_hex(16), "url": f"http://127.0.0.1:{port}{options.path}"}
        write_atomically(folder / _RECORD, json.dumps(record))
        lab = cls(folder, **record)
        lab._write_password()
        lab._write_local_settings()
        environment = lab._environment(options, port, worker_log_port, trigger_log_port)
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
        lab = AirflowLab.load(folder)
        found = lab.stop() if lab is not None else 0
        shutil.rmtree(folder / "pids", ignore_errors=True)
        return found

    def rest(self) -> AirflowRest:
        """A REST client with the rights of the admin user."""
        passwords = json.loads(self.password_file.read_text(encoding="utf-8"))
        return AirflowRest(self.url, USERNAME, passwords[USERNAME])

    def processes(self) -> tuple[ProcessIdentity, ...]:
        """Every living process of this Airflow."""
        sessions, found = self._sessions(), []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if self._has_marker(process) or _is_in(sessions, process):
                    found.append(identify(process.pid))
        return tuple(one for one in found if one is not None)

    def stop(self) -> int:
        """End every process of this Airflow: all are asked first, and after the grace ended by force.

        Returns how many processes there were.
        """
        ended: set[ProcessIdentity] = set()
        for grace_seconds in _STOP_GRACES:
            living = self.processes()
            ended.update(living)
            stop_side_by_side(living, grace_seconds=grace_seconds)
        return len(ended)

    def _has_marker(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.AccessDenied):
            return process.environ().get(MARKER_VARIABLE) == self._marker
        return False

    def _sessions(self) -> dict[int, bool]:
        """Whether its leader lives, by the number of each component's session.

        A number that processes still have is not given to a new one (fork(2), setsid(2)), so a session outlives its
        leader. Where another process has the number, all of this one's have ended.
        """
        sessions = {}
        for pid_file in self.folder.glob("pids/*"):
            with contextlib.suppress(ValueError):  # it is being written
                pid, leader = int(pid_file.read_text(encoding="ascii")), from_pid_file(pid_file)
                if leader is not None or identify(pid) is None:
                    sessions[pid] = leader is not None
        return sessions

    def _environment(
        self, options: AirflowOptions, port: int, worker_log_port: int, trigger_log_port: int
    ) -> dict[str, str]:
        binaries = str(Path(sys.executable).parent)
        return {
            "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            MARKER_VARIABLE: self._marker,
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
        command, name = [_airflow_program(), "db", "migrate"], "The migration of Airflow's database"
        try:
            run_to_end(name, command, self.log("migration"), STARTUP_SECONDS, cwd=self.folder, env=environment)
        except EosError:
            _postgres_part(postgres)  # if the server has ended, it is the cause
            raise

    def start_component(self, name: str, environment: Mapping[str, str]) -> Starting:
        """Start one component, which :meth:`stop` ends; it is not waited for."""
        log, pid_file = self.log(name), self.folder / "pids" / f"{name}-{time.time_ns()}"
        return Starting(
            name, spawn([_airflow_program(), name], log=log, pid_file=pid_file, cwd=self.folder, env=environment), log
        )


def _is_in(sessions: Mapping[int, bool], process: psutil.Process) -> bool:
    """Whether it is in one of these sessions; without a leader the number alone is no proof."""
    number = os.getsid(process.pid)
    return number in sessions and (sessions[number] or "airflow" in " ".join(process.cmdline()))


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
