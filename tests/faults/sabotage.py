"""Faults at the moments of a roll over SSH: each is provoked on the real machine when a worker's turn comes to it.

The product has no such hooks: its own host and machine are wrapped here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow_eos_provider.connect.cluster.placement import SystemdUnit
from airflow_eos_provider.connect.cluster.worker import WorkerDescription
from airflow_eos_provider.lab.machine import Machine as LabMachine
from airflow_eos_provider.rollout.hosts.choose import service_of
from airflow_eos_provider.rollout.hosts.host import HostFacts
from airflow_eos_provider.rollout.hosts.machine.machine import Answer, Machine
from airflow_eos_provider.rollout.hosts.machine.machines import machine_of
from airflow_eos_provider.rollout.hosts.serviced import ServicedHost

#: In the order in which one worker passes them.
MOMENTS = ("edit", "edited", "permitted", "restarted")

Act = Callable[[WorkerDescription], None]


class Sabotage:
    """What happens when the first, second, … worker of a roll comes to a moment; each once.

    :param machines: of the lab, by name.
    :ivar order: the workers whose turn has come, in order.
    :ivar cuts: how many SSH sessions were killed, by what was under way.
    """

    def __init__(self, machines: Mapping[str, LabMachine]) -> None:
        self._machines = machines
        self._acts: dict[tuple[int, str], Act] = {}
        self._each: dict[tuple[int, str], Act] = {}
        self._watchers: list[threading.Thread] = []
        self.order: list[str] = []
        self.cuts: dict[str, int] = {}

    def at(self, turn: int, moment: str, act: Act) -> None:
        """Let something happen once, when the worker whose turn is the n-th comes to a moment."""
        assert moment in MOMENTS
        self._acts[turn, moment] = act

    def at_each(self, turn: int, what: str, act: Act) -> None:
        """Let something happen before each ``command`` of the edit, or each ``look`` after the restart."""
        self._each[turn, what] = act

    def cut(self, worker: WorkerDescription, why: str) -> None:
        """Kill the processes of sshd that serve sessions on the worker's machine; it goes on to listen itself."""
        done = self.machine(worker).run(["pkill", "-KILL", "-f", "^sshd: eos"], check=False)
        self.cuts[why] = self.cuts.get(why, 0) + (done.returncode == 0)

    def cut_between_stop_and_start(self, worker: WorkerDescription) -> None:
        """From now on, wait until systemd has the unit's old process stopping, and cut."""
        unit = unit_of(worker)

        def watch() -> None:
            for _ in range(400):
                words = ["systemctl", "show", "-P", "ActiveState", unit]
                if self.machine(worker).output(words) in ("deactivating", "inactive"):
                    self.cut(worker, "between stop and start")
                    return

        self._watchers.append(threading.Thread(target=watch, daemon=True))
        self._watchers[-1].start()

    def machine(self, worker: WorkerDescription) -> LabMachine:
        assert worker.machine is not None
        return self._machines[worker.machine.ssh]

    def host(self, worker: WorkerDescription) -> ServicedHost:
        """For ``Controller(hosts=…)``."""
        machine = CutMachine(machine_of(worker.machine))
        return SabotagedHost(worker, machine, self)

    def come(self, moment: str, worker: WorkerDescription) -> None:
        if worker.worker_id not in self.order:
            self.order.append(worker.worker_id)
        act = self._acts.pop((self.turn(worker), moment), None)
        if act is not None:
            act(worker)

    def come_each(self, what: str, worker: WorkerDescription) -> None:
        act = self._each.get((self.turn(worker), what))
        if act is not None:
            act(worker)

    def turn(self, worker: WorkerDescription) -> int:
        """1 for the first worker of the roll; 0 for one whose turn has not come."""
        return self.order.index(worker.worker_id) + 1 if worker.worker_id in self.order else 0

    def end(self) -> None:
        """Wait for what was begun beside the roll, and find that nothing was left out."""
        for watcher in self._watchers:
            watcher.join(60)
        assert self._acts == {}, "these moments did not come"


def unit_of(worker: WorkerDescription) -> str:
    """The full name of the worker's unit."""
    assert isinstance(worker.service, SystemdUnit)
    return f"{worker.service.unit.removesuffix('.service')}.service"


class CutMachine:
    """A machine with something that happens before each command; a ``Machine``."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.before_each: Callable[[], None] = lambda: None

    @property
    def name(self) -> str:
        return self._machine.name

    def run(self, words: Sequence[str], **options: Any) -> Answer:
        self.before_each()
        return self._machine.run(words, **options)

    def detached(self, words: Sequence[str], *, stdin: bytes = b"") -> Answer:
        return self._machine.detached(words, stdin=stdin)


class SabotagedHost(ServicedHost):
    """The product's host, whose moments are known."""

    def __init__(self, worker: WorkerDescription, machine: CutMachine, sabotage: Sabotage) -> None:
        super().__init__(worker, machine, service_of(machine, worker))
        self._cut_machine = machine
        self._sabotage = sabotage
        self._is_restarted = False

    def observe(self) -> HostFacts:
        if self._is_restarted:
            self._sabotage.come_each("look", self._worker)
        return super().observe()

    def edit(self, properties: Mapping[str, str | None], *, expect: str) -> str:
        self._sabotage.come("edit", self._worker)
        self._cut_machine.before_each = lambda: self._sabotage.come_each("command", self._worker)
        try:
            digest = super().edit(properties, expect=expect)
        finally:
            self._cut_machine.before_each = lambda: None
        self._sabotage.come("edited", self._worker)
        return digest

    def restart(self, **options: Any) -> None:
        permit = options["permit"]

        def permitted(act: str) -> None:
            permit(act)
            self._sabotage.come("permitted", self._worker)

        super().restart(**{**options, "permit": permitted})
        self._is_restarted = True
        self._sabotage.come("restarted", self._worker)
