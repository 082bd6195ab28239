"""Looks for a secured lab's secrets wherever they could have gone. Each search tells how much it has looked at."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from confluent_kafka.admin import AdminClient

from airflow_eos_provider.kafka.read.reader import LogRecord, scan_to_end
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.servers.postgres import Postgres
from tests.memory import JAVA

#: How often the processes' command lines are looked at, seconds. Some live for a second.
_EVERY_SECONDS = 0.25


def secrets_of(lab: Lab) -> dict[str, str]:
    """The secrets of a secured lab, by what they are: all are random, so each hit is one."""
    assert lab.security is not None
    keys = {file.name: file.read_text().splitlines()[1] for file in lab.security.folder.glob("*.key")}
    assert len(keys) == 4
    return {**lab.security.logins(), "REST": lab.security.rest()["password"], **keys}


@dataclass
class Found:
    """What a search found."""

    secrets: Mapping[str, str]
    looked_at: Counter[str] = field(default_factory=Counter)
    hits: set[tuple[str, str]] = field(default_factory=set)

    def search(self, kind: str, place: str, content: bytes) -> None:
        self.looked_at[kind] += 1
        for what, secret in self.secrets.items():
            if secret.encode() in content:
                self.hits.add((place, what))

    def places(self) -> set[str]:
        return {place for place, _ in self.hits}


def search_files(found: Found, folders: Iterable[Path]) -> None:
    """All files below the folders, by their whole path."""
    for path in (Path(place, name) for folder in folders for place, _, names in os.walk(folder) for name in names):
        with contextlib.suppress(OSError):  # of a process that ends at this moment
            if path.is_file() and not path.is_symlink():
                found.search("files", str(path), path.read_bytes())


def files_with(secret: str, folder: Path) -> list[Path]:
    """The files below a folder that hold a secret; there are files at all."""
    found = Found({"the secret": secret})
    search_files(found, [folder])
    assert found.looked_at["files"]
    return [Path(place) for place in found.places()]


def search_temporary_files(found: Found) -> None:
    """The files of temporary folders, but for those of the tests themselves."""
    for entry in (entry for folder in {Path(tempfile.gettempdir()), JAVA} for entry in folder.iterdir()):
        with contextlib.suppress(FileNotFoundError):  # of a process that ends at this moment
            if entry.name.startswith("pytest-of-") or entry.stat().st_uid != os.getuid():
                continue
            if entry.is_dir():
                search_files(found, [entry])
            elif entry.is_file():
                found.search("files", str(entry), entry.read_bytes())
    found.looked_at["temporary folders"] += 1


def search_topics(found: Found, lab: Lab) -> None:
    """Every record of every topic, aborted ones included; the place is the topic."""
    for topic in AdminClient(lab.kafka.confluent()).list_topics(timeout=180).topics:
        records: list[LogRecord] = []
        scan_to_end(lab.kafka, topic, records.extend, isolation="read_uncommitted", headers=True)
        for record in records:
            content = b"\0".join([record.key or b"", record.value or b"", repr(record.headers).encode()])
            found.search("records", f"topic {topic}", content)


def search_database(found: Found, postgres: Postgres, database: str) -> None:
    """Every row of every table; the place is the table."""
    tables = postgres.run("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", database=database)
    for (table,) in tables:
        for (row,) in postgres.run(f'SELECT t::text FROM "{table}" t', database=database):
            found.search("rows", f"table {table}", row.encode())


class CommandLines:
    """Looks at the command lines of all processes again and again, until the end of the block."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self._seen: set[tuple[int, float]] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread.is_alive(), "the search has ended early"
        self._ended.set()
        self._thread.join(timeout=180)

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            for process in psutil.process_iter():
                try:
                    one = (process.pid, process.create_time())
                    if one not in self._seen:
                        command = "\0".join(process.cmdline())
                        self._found.search(
                            "command lines", f"command of pid {process.pid}: {command}", os.fsencode(command)
                        )
                        self._seen.add(one)
                except psutil.Error:
                    continue
