"""Proposes the entry of a worker on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from airflow_eos_provider.rollout.hosts import ownership
from airflow_eos_provider.rollout.hosts.address import port_of
from airflow_eos_provider.rollout.hosts.discovery.proposal import ProposedWorker, propose, view_of
from airflow_eos_provider.rollout.hosts.discovery.search_machine import MachineLook, SeenProcess, look_at
from airflow_eos_provider.rollout.hosts.machine.this_machine import ThisMachine


def look_here(urls: Iterable[str]) -> MachineLook:
    """Look for workers on this machine; a parent, a unit or a container of eos itself owns none of them."""
    seen = look_at(ThisMachine(), map(port_of, urls))
    here, above = ownership.own_view()

    def seen_from_here(process: SeenProcess) -> SeenProcess:
        parents = tuple(parent for parent in process.parents if parent.pid not in above)
        view = view_of(process)
        is_beside = here is not None and (view.unit, view.container) == (here.unit, here.container)
        return replace(process, parents=parents, cgroups=() if is_beside else process.cgroups)

    return replace(seen, processes=tuple(map(seen_from_here, seen.processes)))


def propose_here(url: str, group_id: str, seen: MachineLook) -> ProposedWorker:
    """What is proposed for the worker of this machine that advertises ``url``, as its description has it here."""
    found = propose(url, group_id, seen)
    if not found.start_pid:
        return found
    entry = {**found.entry, **found.entry["service"]}
    del entry["service"]
    (me, above), top = ownership.own_view(), ownership.look(found.start_pid)
    refused = ownership.obstacles(top, ownership.look(top.parent), me, above) if top and me else ()
    remarks = (f"eos would refuse to restart it: {each.what} (what to do: {each.remedy})" for each in refused)
    return replace(found, entry=entry, remarks=(*found.remarks, *remarks))
