"""What a test sees of a lab's workers from outside: their modes, processes, files and starts."""

from __future__ import annotations

import re

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.rollout.hosts.host import HostFacts
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.observe.observer import Observer

#: One line of Connect's own for each start of a worker (ConnectDistributed).
_STARTED = re.compile(rb"Kafka Connect worker initializing")


def look(lab: Lab) -> Observation:
    with Observer(lab.cluster()) as observer:
        return observer.observe()


def modes(lab: Lab) -> set[Mode | None]:
    return {worker.mode.verdict.mode for worker in look(lab).workers}


def mode_of(lab: Lab, worker_id: str) -> Mode | None:
    return look(lab).worker(worker_id).mode.verdict.mode


def pids(lab: Lab) -> dict[str, int]:
    """Of those that run."""
    return {w.worker_id: pid for w in look(lab).workers if (pid := pid_of(w.facts))}


def pid_of(facts: HostFacts) -> int:
    """The worker's process; 0 while it does not run."""
    pid = facts.details["pid"]
    assert pid is None or isinstance(pid, int)
    return pid or 0


def files(lab: Lab) -> dict[str, bytes]:
    return {w.worker_id: w.config.read_bytes() for w in lab.cluster().workers if w.config}


def starts(lab: Lab) -> dict[str, int]:
    """How often each worker was started so far, by its own log."""
    return {w.worker_id: len(_STARTED.findall(w.log.read_bytes())) for w in lab.cluster().workers if w.log}
