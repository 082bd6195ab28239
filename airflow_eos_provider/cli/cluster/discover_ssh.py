"""``eos discover --ssh``: finds a group's workers on their machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from airflow_eos_provider.connect.cluster.description import worker_id_of
from airflow_eos_provider.connect.cluster.placement import PRIVILEGES, MachineDescription, SshLogin
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.rollout.hosts.address import port_of
from airflow_eos_provider.rollout.hosts.discovery.proposal import ProposedWorker, propose, shared
from airflow_eos_provider.rollout.hosts.discovery.search_machine import MachineLook, look_at
from airflow_eos_provider.rollout.hosts.machine.machine import Machine

#: So many machines are looked at at once.
_SIDE_BY_SIDE = 16

#: These are this machine, whatever is meant by other loopback addresses.
_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})

Reach = Callable[[MachineDescription], Machine]


@dataclass(frozen=True, slots=True)
class SshOptions:
    """How machines are logged in to."""

    user: str | None = None
    config: Path | None = None
    sudo: bool = False

    def machine(self, url: str) -> MachineDescription:
        """The machine of a worker: the host of its address, or the name that the SSH configuration gives that host."""
        host = urlsplit(url).hostname or ""
        file = self.config or Path.home() / ".ssh" / "config"
        try:
            text = file.read_text(encoding="utf-8")
        except OSError:
            text = ""
        return MachineDescription(alias_of(text, host), SshLogin(user=self.user), ssh_config=self.config)

    def entry(self, machine: MachineDescription, found: ProposedWorker) -> dict[str, Any]:
        """``machine`` of a worker's entry."""
        said: dict[str, Any] = {"ssh": machine.ssh}
        if self.user:
            said["user"] = self.user
        if self.config:
            said["ssh_config"] = str(self.config.absolute())
        if found.sudo:
            all_of_them = found.sudo == frozenset(PRIVILEGES)
            said["sudo"] = True if all_of_them else [each for each in PRIVILEGES if each in found.sudo]
        return said


@dataclass(frozen=True, slots=True)
class Looked:
    """What came of one member of the group."""

    entry: dict[str, Any]
    remarks: tuple[str, ...]


def is_elsewhere(url: str) -> bool:
    """Whether a worker is looked for over SSH."""
    return (urlsplit(url).hostname or "") not in _THIS_MACHINE


def alias_of(config: str, host: str) -> str:
    """The name that an OpenSSH configuration gives to a host.

    :param config: its text.
    :returns: the first ``Host`` without a pattern whose ``HostName`` it is; ``host`` itself, if it is one or none is.
    """
    names: list[str] = []
    found = None
    for line in config.splitlines():
        key, _, value = line.strip().replace("=", " ", 1).partition(" ")
        words = [word.strip('"') for word in value.split()]
        if key.lower() in ("host", "match"):
            names = [word for word in words if not set("*?!") & set(word)] if key.lower() == "host" else []
            if host in names:
                return host
        elif key.lower() == "hostname" and words == [host] and names and found is None:
            found = names[0]
    return found or host


def look_over_ssh(urls: Sequence[str], group_id: str, options: SshOptions, reach: Reach) -> dict[str, Looked]:
    """Look for workers on their machines, side by side, each machine once."""
    machines = {url: options.machine(url) for url in urls}
    names = list(dict.fromkeys(machines.values()))
    ports = {name: [port_of(url) for url in urls if machines[url] == name] for name in names}

    def look(machine: MachineDescription) -> MachineLook | EosError:
        try:
            return look_at(reach(machine), ports[machine], sudo=options.sudo)
        except EosError as error:
            return error

    with ThreadPoolExecutor(max_workers=_SIDE_BY_SIDE, thread_name_prefix="discover") as pool:
        seen = dict(zip(names, pool.map(look, names), strict=True))
    return {url: _looked(url, group_id, options, machines[url], seen[machines[url]]) for url in urls}


def _looked(
    url: str, group_id: str, options: SshOptions, machine: MachineDescription, seen: MachineLook | EosError
) -> Looked:
    worker_id, shown = worker_id_of(url), url.rstrip("/")
    if isinstance(seen, EosError):
        remedy = f" What to do: {seen.remedy}" if seen.remedy else ""
        why = seen.found.rstrip(".")
        return Looked({"url": shown}, (f"{worker_id}: {machine} was not looked at: {why}.{remedy}",))
    found = propose(url, group_id, seen)
    entry = {"url": shown, "machine": options.entry(machine, found), **found.entry}
    return Looked(entry, tuple(f"{worker_id}: {each}" for each in _remarks(machine, seen, found)))


def _remarks(machine: MachineDescription, seen: MachineLook, found: ProposedWorker) -> Iterator[str]:
    if found.pid is not None:
        yield f"process {found.pid} on {machine}, run by {found.owner}; seen as {seen.user}."
    yield from (f"{remark}." for remark in found.remarks)
    if found.start_pid and "pid_file" not in found.entry["service"]:
        file = f"write {found.start_pid} into a file on its machine and name that as pid_file"
        yield f"no pid file names it: {file}."
    if found.sudo:
        privileges = ", ".join(each for each in PRIVILEGES if each in found.sudo)
        yield f"through sudo there: {privileges}; 'eos hosts sudoers' prints what to allow {seen.login}."


def with_defaults(entries: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What all entries say, said once as ``defaults``, and the entries without it.

    Where a worker is on this machine or was not seen, nothing is: the defaults would be its own, too.
    """
    if not all("machine" in entry for entry in entries):
        return {}, [dict(entry) for entry in entries]
    of_machines = shared([entry["machine"] for entry in entries])
    defaults = shared([{key: value for key, value in entry.items() if key != "machine"} for entry in entries])
    rest = []
    for entry in entries:
        own = {key: value for key, value in entry.items() if key not in defaults}
        machine = {key: value for key, value in entry["machine"].items() if key not in of_machines}
        rest.append(
            {key: machine if key == "machine" else value for key, value in own.items() if key != "machine" or machine}
        )
    return ({"machine": of_machines} if of_machines else {}) | defaults, rest
