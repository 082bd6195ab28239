"""Proposes a worker's entry from a search of its machine: its service, its file, its log, and what needs sudo.

Pure values; :mod:`~airflow_eos_provider.rollout.hosts.discovery.search_machine` searches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from airflow_eos_provider.connect.cluster.placement import PRIVILEGES, Privilege
from airflow_eos_provider.kafka.settings.kafka_settings import is_secret
from airflow_eos_provider.rollout.hosts.address import port_of
from airflow_eos_provider.rollout.hosts.discovery.search_machine import MachineLook, SeenParent, SeenProcess
from airflow_eos_provider.rollout.hosts.ownership import SHELLS, SUPERVISORS, ProcessView, ports_of

#: Groups whose members may read the journal of the whole system (systemd-journald.service(8)).
JOURNAL_GROUPS = frozenset({"systemd-journal", "adm", "wheel"})

_GARBAGE_COLLECTION = re.compile(r"(^|[-_.])gc([-_.]|$)", re.IGNORECASE)

#: Words before a list of jars, in which names like ``token.jar`` say nothing of secrets.
_CLASS_PATH = frozenset({"-cp", "-classpath", "--class-path"})

ROOT = "root"


@dataclass(frozen=True, slots=True)
class ProposedWorker:
    """What is proposed for one worker on another machine."""

    pid: int | None = None  #: its process there; None if none was found
    owner: str = ""  #: who runs it
    #: what its description says beside ``url`` and ``machine``.
    entry: Mapping[str, Any] = field(default_factory=dict)
    sudo: frozenset[Privilege] = frozenset()  #: what goes through ``sudo -n`` there
    remarks: tuple[str, ...] = ()  #: what whoever completes the description should know
    start_pid: int = 0  #: the process of its start command; 0 where none is proposed


def propose(url: str, group_id: str, seen: MachineLook) -> ProposedWorker:
    """What is proposed for the worker that advertises ``url``."""
    process, doubt = choose(url, group_id, seen)
    if process is None:
        return ProposedWorker(remarks=(doubt,))
    service, remarks = _service(process)
    log, about_log = _log(process, service, seen.user)
    entry = {**service, **({"config": process.config} if process.config else {}), **log}
    all_remarks = (*([doubt] if doubt else []), *_about_file(process, seen.user), *remarks, *about_log)
    start_pid = _starter(process).pid if "start" in service.get("service", {}) else 0
    return ProposedWorker(process.pid, process.owner, entry, _sudo(process, entry, seen), all_remarks, start_pid)


def choose(url: str, group_id: str, seen: MachineLook) -> tuple[SeenProcess | None, str]:
    """The process that listens at an address, as far as that may be seen; and, in words, how sure that is."""
    port, listeners = port_of(url), seen.listeners_at(url)
    own = [each for each in seen.processes if (each.settings or {}).get("group.id", group_id) == group_id]
    listening = [each for each in seen.processes if each.sockets & listeners]
    worker = next((each for each in listening if each.is_worker_of(group_id)), None)
    if worker is not None:
        return worker, ""
    workers = [each for each in own if each.is_worker and port in (ports_of(each.settings or {}) or {port})]
    by_file = [each for each in workers if port in ports_of(each.settings or {})]  # one that is reached by another port
    if listening:
        hidden = not_a_worker(port, listening[0].pid, listening[0].name)
    else:
        hidden = f"{seen.user} may not see who listens on port {port} (the worker's user and root may)"
        workers = [each for each in workers if not each.sockets]  # one whose sockets are seen listens elsewhere
    if len(by_file) == 1:
        return by_file[0], f"identified by the ports in its file: {hidden}" if listening else ""
    if len(workers) == 1:
        return workers[0], f"assumed, since it is the only worker of its machine: {hidden}"
    if workers:
        pids = ", ".join(str(each.pid) for each in workers)
        return None, f"it is one of the processes {pids} of its machine: {hidden}"
    return None, (
        f"{seen.user} sees no process of it on its machine (a command line with ConnectDistributed, or a listener on "
        f"port {port}): log in as root or as the worker's user, or name the machine that it runs on"
        + (f"; {hidden}" if listening else "")
    )


def _service(process: SeenProcess) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Who owns the process, as the description says it, and what is to be known of that."""
    supervisor = next((each for each in process.parents if _is_supervisor(each)), None)
    if supervisor is not None:  # first: a supervisor may run in a unit of its own
        return _supervised(process, supervisor)
    view = view_of(process)
    if view.container is not None:
        return {}, (f"it runs in a container ({view.container[:40]}), which is not rolled over SSH",)
    if view.unit is not None:
        return _unit(process, view.unit)
    return _started(process)


def view_of(process: SeenProcess) -> ProcessView:
    return ProcessView(process.pid, process.name, uid=-1, parent=0, session=0, cgroups=process.cgroups)


def _is_supervisor(parent: SeenParent) -> bool:
    return parent.name in SUPERVISORS or any(PurePosixPath(word).name in SUPERVISORS for word in parent.command[:2])


def _unit(process: SeenProcess, unit: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    if any("/user@" in path for path in process.cgroups):
        return {}, (f"it belongs to {unit} of its user's own systemd, which eos does not restart: use a system unit",)
    remarks = []
    main = process.unit.get("MainPID", "0")
    if main not in ("0", str(process.pid)) and int(main) not in {each.pid for each in process.parents}:
        remarks.append(f"the main process of {unit} is {main}, and not this worker: see 'eos hosts check'")
    if process.unit.get("Restart") == "no":
        remarks.append(f"{unit} has Restart=no: systemd does not start it again when it ends by itself")
    return {"service": {"systemd": unit.removesuffix(".service")}}, tuple(remarks)


def _supervised(process: SeenProcess, supervisor: SeenParent) -> tuple[dict[str, Any], tuple[str, ...]]:
    words = [supervisor.name, *(PurePosixPath(word).name for word in supervisor.command[:2])]
    name = next(word for word in words if word in SUPERVISORS)
    if name == "supervisord":
        program = process.supervised.get("SUPERVISOR_PROCESS_NAME")
        group = process.supervised.get("SUPERVISOR_GROUP_NAME", program)
        if program is None:
            return {}, (
                f"supervisord (pid {supervisor.pid}) owns it; its name there is in the process's variables, which may "
                "not be seen: write service: {command: {restart: [supervisorctl, restart, NAME], "
                "status: [supervisorctl, pid, NAME]}}",
            )
        full = program if group == program else f"{group}:{program}"
        return _commands(["supervisorctl", "restart", full], ["supervisorctl", "pid", full], supervisor)
    if name == "runsv" and supervisor.cwd:
        folder = supervisor.cwd
        return _commands(["sv", "-w", "60", "force-restart", folder], ["sv", "status", folder], supervisor)
    return {}, (
        f"{name} (pid {supervisor.pid}) owns it: write service: {{command: {{restart: […], status: […]}}}} with the "
        "commands that restart it and print its pid",
    )


def _commands(
    restart: Sequence[str], status: Sequence[str], supervisor: SeenParent
) -> tuple[dict[str, Any], tuple[str, ...]]:
    return {"service": {"command": {"restart": list(restart), "status": list(status)}}}, (
        f"{supervisor.name} (pid {supervisor.pid}) owns it: check that these commands are its own, and that its stop "
        "timeout is long enough for the worker's tasks",
    )


def _started(process: SeenProcess) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A start command: of the script that waits for the worker, else its own, without secrets."""
    starter = _starter(process)
    service: dict[str, Any] = {}
    remarks = ["nothing starts it again when it ends"]
    secrets = secret_words(starter.command)
    if secrets:
        remarks.append(
            f"its command line may contain a secret ({', '.join(secrets)}), so start is left out: write a start "
            "script that takes it from a file, restart the worker by it, and name the script"
        )
    else:
        service["start"] = list(starter.command)
        if starter.cwd:
            service["cwd"] = starter.cwd
        if process.pid_files:
            service["pid_file"] = process.pid_files[0]
        if starter is process:
            remarks.append("no script waits for it: start is the process's own command line")
    if process.variables is None:
        remarks.append("its variables cannot be read: add the variables that it needs as env")
    elif process.variables:
        names = ", ".join(sorted(process.variables))
        remarks.append(f"it was started with {names}: add them as env unless start sets them itself")
    return ({"service": service} if "start" in service else {}), tuple(remarks)


def _starter(process: SeenProcess) -> SeenProcess | SeenParent:
    """The script that waits for a process, else the process itself: Kafka's own scripts give way to it (``exec``)."""
    parent = process.parents[0] if process.parents else None
    return parent if parent is not None and _is_script(parent) else process


def _is_script(parent: SeenParent) -> bool:
    """Whether it is a shell that runs a script by its name, as a start script that waits for its worker is."""
    words = parent.command
    return len(words) > 1 and PurePosixPath(words[0]).name in SHELLS and not words[1].startswith("-")


def _log(process: SeenProcess, service: Mapping[str, Any], user: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    if "systemd" in service.get("service", {}) and process.unit.get("StandardOutput", "").startswith("journal"):
        return {"log": {"journal": True}}, ()
    logs = [each for each in process.written or () if each.endswith(".log") and not _GARBAGE_COLLECTION.search(each)]
    candidates = [each for each in (*process.started_in, *logs, process.output) if each]
    if candidates:
        return {"log": candidates[0]}, ()
    if len(process.parent_logs) == 1:  # its supervisor writes what it prints
        return {"log": process.parent_logs[0]}, ()
    if process.parent_logs:
        return {}, (f"its log is one of {', '.join(process.parent_logs)}",)
    why = f"{user} may not see its open files" if process.written is None else "it has no log file open"
    return {}, (f"its log was not found: {why}",)


def _about_file(process: SeenProcess, user: str) -> Iterator[str]:
    if not process.config:
        if any(word.endswith(".properties") for word in process.command):
            yield f"its properties file has a relative path, and {user} may not see its working folder: add config"
        else:
            yield "its command line names no properties file: add config"
    elif process.settings is None:
        yield f"{user} may not read {process.config}: it needs sudo for the file, see 'eos hosts sudoers'"


def _sudo(process: SeenProcess, entry: Mapping[str, Any], seen: MachineLook) -> frozenset[Privilege]:
    """What the login may not do by itself, as far as it can be seen; `eos hosts check` tries it."""
    if seen.login == ROOT:
        return frozenset()
    wanted: dict[Privilege, bool] = {
        "file": bool(process.config) and process.config_owner != seen.login,
        "service": bool({"systemd", "command"} & entry.get("service", {}).keys()),
        "log": entry.get("log") == {"journal": True} and not seen.groups & JOURNAL_GROUPS,
    }
    return frozenset(each for each in PRIVILEGES if wanted[each])


def shared(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What several entries all say, and so may be said once for all: ``defaults``. Nothing for a lone one."""
    if len(entries) < 2:
        return {}
    first, *others = entries
    return {
        name: value
        for name, value in first.items()
        if name != "url" and all(name in other and other[name] == value for other in others)
    }


def not_a_worker(port: int, pid: int, name: str) -> str:
    return f"port {port} is held by process {pid} ({name}), which is no Connect worker of this group; it may be a proxy"


def secret_words(command: Sequence[str]) -> tuple[str, ...]:
    """The words of a command line that may hold a secret, without their values."""
    found = []
    for before, word in zip(("", *command), command, strict=False):
        if before in _CLASS_PATH or (word.startswith("/") and "=" not in word):
            continue
        has_password = bool(re.search(r"://[^:/@\s]++:[^/@\s]++@", word))
        if has_password or is_secret(word.replace("_", ".")):
            found.append(
                word.partition("=")[0] if "=" in word else "an address with a password" if has_password else word
            )
    return tuple(found)
