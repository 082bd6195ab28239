"""A Connect worker on a machine of its own: a systemd unit of a template, as a package would bring it."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.lab.jars.java import jvm_command
from airflow_eos_provider.lab.servers.connect_worker import HEAP_MEGABYTES, MAIN_CLASS, Worker
from airflow_eos_provider.lab.servers.part import log_config_file, properties_text
from airflow_eos_provider.local_processes import ProcessIdentity, identify
from tests.lab.machine import Machine, run_in
from tests.lab.machine_login import MachineLogin
from tests.lab.machine_root import CLOCK_FILE, CONFIG_FOLDER, WORKER_USER, accounts, enable

#: Longer than systemd's own limit for the unit.
_STOP_SECONDS = 100.0

TEMPLATE = "kafka-connect@.service"

_PROGRAM = "/usr/local/bin/connect-distributed"

#: A second passes before a unit that has ended is started again; it is given up after five starts within ten seconds.
_UNIT = f"""\
[Unit]
Description=Kafka Connect worker %i
After=network.target

[Service]
User={WORKER_USER}
ExecStart={_PROGRAM} {CONFIG_FOLDER}/connect-%i.properties
Restart=always
RestartSec=1
TimeoutStopSec=90
SuccessExitStatus=143

[Install]
WantedBy=machine.target
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineWorker(Worker):
    """One worker, on a machine of a lab."""

    machine: Machine

    @property
    def host(self) -> str:
        return self.machine.host

    @property
    def unit(self) -> str:
        return TEMPLATE.replace("@", f"@{self.number}")

    @property
    def config(self) -> Path:
        """Its properties file, a path on its machine."""
        return CONFIG_FOLDER / f"connect-{self.number}.properties"

    @property
    def log(self) -> Path:
        """The folder of its machine's journal, for ``journalctl -D``."""
        return self.machine.layer.path("/var/log/journal")

    @property
    def log_config(self) -> Path:
        return CONFIG_FOLDER / self.log_config_name

    @property
    def start_command(self) -> list[str]:
        return jvm_command(
            MAIN_CLASS,
            [],
            class_path=self.class_path,
            heap_megabytes=HEAP_MEGABYTES,
            marker=self.marker,
            log_config=self.log_config,
            options=self.jvm_options,
        )

    def config_bytes(self) -> bytes:
        return self.machine.read(self.config)

    def prepare(self, properties: Mapping[str, str]) -> None:
        """Write what the worker needs into its machine, which is off."""
        layer = self.machine.layer
        owner = accounts(Path("/etc/passwd").read_text(encoding="utf-8"))[1]
        layer.directory(CONFIG_FOLDER, 0o750, covering=True)
        layer.write(self.config, properties_text(properties).decode(), 0o640, owner)
        layer.write(self.log_config, log_config_file(self.log_config.name).read_text(encoding="utf-8"))
        os.chown(layer.path(CONFIG_FOLDER), owner.number, owner.number)
        layer.write(_PROGRAM, f'#!/bin/sh\nexec {shlex.join(self.start_command)} "$@"\n', 0o755)
        layer.directory("/etc/sudoers.d", 0o750, covering=True)
        layer.write(
            "/etc/sudoers",
            f"Defaults env_reset\nDefaults env_file={CLOCK_FILE}\nroot ALL=(ALL) ALL\n@includedir /etc/sudoers.d\n",
            0o440,
        )
        enable(layer, TEMPLATE, _UNIT, self.unit)

    def process(self, token: str) -> ProcessIdentity | None:
        """The worker's JVM, as this machine sees it; None if it does not run."""
        system = self.machine.first_process
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(system.pid).children() if system else ():
                if self.marker in child.cmdline():
                    return identify(child.pid)
        return None

    def start(self) -> ProcessIdentity:
        """Have the unit started, without a wait.

        :returns: what keeps the machine on: the unit's own process may end and be another one.
        """
        self.machine.run(["systemctl", "start", "--no-block", self.unit])
        starter = self.machine.starter
        if starter is None:
            raise EosError(f"The machine {self.machine.name} went off.")
        return starter

    def stop(self, *, kill: bool = False) -> None:
        """Stop the unit; it stays stopped until it is started, or the machine boots. Nothing to do if that is off."""
        if self.machine.first_process is None:
            return
        if kill:
            self.machine.run(["systemctl", "kill", "--signal=SIGKILL", self.unit], check=False)
        self.machine.run(["systemctl", "stop", self.unit], seconds=_STOP_SECONDS)

    def description(self) -> dict[str, object]:
        """The worker's entry in the cluster file."""
        login = MachineLogin(self.folder)
        return {
            "url": self.url,
            "machine": {"ssh": self.machine.name, "ssh_config": str(login.config), "sudo": True},
            "service": {"systemd": self.unit},
            "config": str(self.config),
            "log": {"journal": True},
        }


def stop_workers(process: ProcessIdentity) -> None:
    """Let the workers of a machine leave their group; how they end does not matter, for its power is cut next.

    :param process: the machine's first process; another one is left alone.
    """
    if (command := process.command_line()) and Path(command[0]).name == "systemd":
        stop = ["systemctl", "stop", TEMPLATE.replace("@", "@*")]
        with contextlib.suppress(EosError):
            run_in(process.pid, stop, seconds=_STOP_SECONDS, what=f"process {process.pid}")
