"""What a lab consists of: brokers, workers, PostgreSQL. Each part is one process."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.properties import set_property
from airflow_eos_provider.lab.lab_processes import own_process
from airflow_eos_provider.local_processes import ProcessIdentity


class Part(ABC):
    """One part of a lab, with its files in the lab's folder, on a port of the loopback interface."""

    __slots__ = ()

    folder: Path
    port: int

    @property
    @abstractmethod
    def name(self) -> str:
        """``broker``, ``broker2``, ``postgres``, ``w1`` and so on."""

    @property
    @abstractmethod
    def start_command(self) -> list[str]: ...

    @abstractmethod
    def answers(self) -> bool:
        """Whether it answers its clients now."""

    @property
    def config(self) -> Path:
        return self.folder / f"{self.name}.properties"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def pid_file(self) -> Path:
        return pid_file_of(self.folder, self.name)

    @property
    def ports(self) -> tuple[int, ...]:
        return (self.port,)

    @property
    def address(self) -> str:
        """Where clients reach it: ``host:port`` or a URL."""
        return f"127.0.0.1:{self.port}"

    def process(self, token: str) -> ProcessIdentity | None:
        """Its process if it runs, known by the lab's token."""
        return own_process(self.pid_file, token)

    def mode_in_file(self) -> Mode | None:
        """The mode in a worker's properties file, None for other parts."""
        return None


def pid_file_of(folder: Path, name: str) -> Path:
    return folder / f"{name}.pid"


def properties_text(properties: Mapping[str, str]) -> bytes:
    """The content of a Java properties file; characters that it cannot hold are escaped."""
    content = b""
    for name, value in properties.items():
        content = set_property(content, name, value)
    return content


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a Java properties file that only its owner can read; it may hold passwords."""
    path.touch(mode=0o600)
    path.write_bytes(properties_text(properties))


def log_config_file(name: str) -> Path:
    """The lab's own configuration of the logging, ``log4j2.xml`` or ``reload4j.properties``."""
    return Path(__file__).with_name(name)


def place_log_config(path: Path) -> None:
    """Copy the configuration of the logging to where a part reads it; one that is there stays."""
    if not path.exists():
        shutil.copyfile(log_config_file(path.name), path)
