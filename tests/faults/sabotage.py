"""Faults at the moments of a roll over SSH: each is provoked on the real machine when a worker's turn comes to it.

The product has no such hooks: its own host is wrapped here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from airflow_eos_provider.connect.cluster.placement import SystemdUnit
from airflow_eos_provider.connect.cluster.worker import WorkerDescription
from airflow_eos_provider.rollout.hosts.choose import service_of
from airflow_eos_provider.rollout.hosts.host import RestartRequest
from airflow_eos_provider.rollout.hosts.machine.machines import machine_of
from airflow_eos_provider.rollout.hosts.serviced import ServicedHost
from tests.lab.machine import Machine as LabMachine

#: In the order in which one worker passes them.
MOMENTS = ("edit", "edited", "permitted", "restarted")

Act = Callable[[WorkerDescription], None]


class Sabotage:
    """What happens when the first, second, … worker of a roll comes to a moment; each once.

    :param machines: of the lab, by name.
    :ivar order: the workers whose turn has come, in order.
    """

    def __init__(self, machines: Mapping[str, LabMachine]) -> None:
        self._machines = machines
        self._acts: dict[tuple[int, str], Act] = {}
        self.order: list[str] = []

    def at(self, turn: int, moment: str, act: Act) -> None:
        """Let something happen once, when the worker whose turn is the n-th comes to a moment."""
        assert moment in MOMENTS
        self._acts[turn, moment] = act

    def machine(self, worker: WorkerDescription) -> LabMachine:
        assert worker.machine is not None
        return self._machines[worker.machine.ssh]

    def host(self, worker: WorkerDescription) -> ServicedHost:
        """For ``Controller(hosts=…)``."""
        return SabotagedHost(worker, self)

    def come(self, moment: str, worker: WorkerDescription) -> None:
        if worker.worker_id not in self.order:
            self.order.append(worker.worker_id)
        turn = self.order.index(worker.worker_id) + 1
        act = self._acts.pop((turn, moment), None)
        if act is not None:
            act(worker)

    def end(self) -> None:
        """Find that nothing was left out."""
        assert self._acts == {}, "these moments did not come"


def unit_of(worker: WorkerDescription) -> str:
    """The full name of the worker's unit."""
    assert isinstance(worker.service, SystemdUnit)
    return f"{worker.service.unit.removesuffix('.service')}.service"


class SabotagedHost(ServicedHost):
    """The product's host, whose moments are known."""

    def __init__(self, worker: WorkerDescription, sabotage: Sabotage) -> None:
        machine = machine_of(worker.machine)
        super().__init__(worker, machine, service_of(machine, worker))
        self._sabotage = sabotage

    def edit(self, properties: Mapping[str, str | None], *, expect: str) -> str:
        self._sabotage.come("edit", self._worker)
        digest = super().edit(properties, expect=expect)
        self._sabotage.come("edited", self._worker)
        return digest

    def restart(self, request: RestartRequest = RestartRequest()) -> None:  # noqa: B008 (frozen)
        def permitted(act: Literal["stop", "start"]) -> None:
            request.permit(act)
            self._sabotage.come("permitted", self._worker)

        super().restart(replace(request, permit=permitted))
        self._sabotage.come("restarted", self._worker)
