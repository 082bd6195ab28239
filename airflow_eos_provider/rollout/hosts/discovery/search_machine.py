"""Searches a machine for Kafka Connect's workers: runs one script there and parses its output into values.

Values of variables never leave their machine; of a properties file, only the settings that identify the worker do.
Command lines do, and may contain secrets; proposals omit these.
"""

from __future__ import annotations

import base64
import binascii
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.rollout.hosts.machine.machine import Machine
from airflow_eos_provider.rollout.hosts.ownership import names_worker
from airflow_eos_provider.rollout.hosts.service.restart_act import listening_at

#: How long a look may take, seconds: it reads ``/proc``, and a log until it finds the printed settings.
LOOK_SECONDS = 60.0

#: How an open socket is shown; a file's name may look much like it.
_SOCKET = re.compile(r"socket:\[([0-9]{1,20})\]")

#: What is asked of systemd about a unit.
UNIT_PROPERTIES = ("Id", "LoadState", "MainPID", "Restart", "StandardOutput", "StandardError")

#: Its arguments are TCP ports. One fact a line: a word, and a value in Base64. The pattern of grep's does not match the
#: command line of grep itself.
SCRIPT = r"""
LC_ALL=C; export LC_ALL
say() { printf '%s ' "$1"; printf '%s' "$2" | base64 -w0; echo; }
login=${SUDO_USER:-$(id -un)}
say login "$login $(id -un)"
say groups "$(id -Gn -- "$login")"
inodes=
for port do
  hex=$(printf '%04X' "$port")
  for table in /proc/net/tcp /proc/net/tcp6; do
    while read -r _ address _ state _ _ _ _ _ inode _; do
      case "$address $state" in *":$hex 0A") say listener "$address $inode"; inodes="$inodes $inode ";; esac
    done 2>/dev/null <"$table"
  done
done
holders() {
  [ -n "$inodes" ] || return 0
  ls -l /proc/[0-9]*/fd 2>/dev/null | grep -e '^/proc/' -e 'socket:' | while read -r line; do
    case $line in
      /proc/*) of=${line#/proc/}; of=${of%%/*} ;;
      *) inode=${line##*socket:[}; case "$inodes" in *" ${inode%]} "*) echo "$of" ;; esac ;;
    esac
  done
}
workers() { grep -las 'Connect[D]istributed' /proc/[0-9]*/cmdline | cut -d/ -f3; }
ppid() { grep -s '^PPid:' status | tr -dc 0-9; }
for pid in $({ workers; holders; } | sort -un); do
  cd "/proc/$pid" 2>/dev/null || continue
  say process "$pid"
  printf 'command '; base64 -w0 <cmdline; echo
  say name "$(cat comm)"
  say owner "$(stat -c '%U %u' .)"
  say cgroup "$(cat cgroup)"
  cwd=$(readlink cwd 2>/dev/null) && say cwd "$cwd"
  files=$(ls -l fd 2>/dev/null | grep -e '^l.w' -e 'socket:') && say files "$files"
  if variables=$(tr '\0' '\n' 2>/dev/null <environ); then
    say variables "$(printf '%s\n' "$variables" |
      grep -E '^(KAFKA_[A-Z0-9_]*|CONNECT_[A-Z0-9_]*|LOG_DIR|EXTRA_ARGS|CLASSPATH|JAVA_OPTS)=' | cut -d= -f1)"
    say supervised "$(printf '%s\n' "$variables" | grep -E '^SUPERVISOR_(PROCESS|GROUP)_NAME=')"
  fi
  above=$pid
  while above=$(grep -s '^PPid:' "/proc/$above/status" | tr -dc 0-9) && [ "${above:-0}" -gt 1 ]; do
    say parent "$above $(cat "/proc/$above/comm") $(readlink "/proc/$above/cwd" 2>/dev/null)"
    printf 'parent-command '; base64 -w0 <"/proc/$above/cmdline"; echo
  done
  unit=$(tr / '\n' <cgroup | grep '\.service$' | tail -n1)
  [ -z "$unit" ] || say unit "$(timeout 5 systemctl show -p @PROPERTIES@ -- "$unit" 2>/dev/null)"
  config=$(tr '\0' '\n' <cmdline | grep '^[^-].*\.properties$' | tail -n1)
  case $config in /* | '') ;; *) config=${cwd:+$cwd/$config} ;; esac
  if [ -n "$config" ]; then
    say config "$config"
    say config-owner "$(stat -L -c '%U %u' -- "$config" 2>/dev/null)"
    if [ -f "$config" ] && [ -r "$config" ]; then
      say config-settings "$(grep -E '^ *(group\.id|listeners|rest\.(advertised\.)?(port|listeners))[ =:]' <"$config")"
    fi
  fi
  for folder in "$cwd" "${config%/*}"; do
    case $folder in /*) timeout 5 grep -lsxE "$pid|$(ppid)" "$folder"/*.pid ;; esac
  done | sort -u | while read -r file; do say pid-file "$file"; done
  logs() {
    ls -l "$1" 2>/dev/null | grep '^l.w.*\.log$' | sed 's/.* -> //' | sort -u | while read -r log; do
      timeout 5 grep -qs 'DistributedConfig values:' -- "$log" && say "$2" "$log"
    done
  }
  logs fd started-in
  logs "/proc/$(ppid)/fd" parent-log
done
say end .
""".replace("@PROPERTIES@", ",".join(UNIT_PROPERTIES))


@dataclass(frozen=True, slots=True)
class SeenParent:
    pid: int
    name: str  #: name of its program, as the kernel has it
    cwd: str = ""  #: its working folder; empty if that may not be seen
    command: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class SeenProcess:
    """A process that may be a worker, as its machine shows it to the login."""

    pid: int
    command: tuple[str, ...] = field(repr=False)
    name: str = ""
    owner: str = ""
    cwd: str | None = None  #: its working folder; None if that may not be seen
    cgroups: tuple[str, ...] = ()  #: paths of its control groups
    written: tuple[str, ...] | None = None  #: files that it has open for writing; None if they may not be seen
    output: str = ""  #: the file that its standard output goes to; empty for a pipe, a socket or a terminal
    sockets: frozenset[int] = frozenset()  #: inodes of its sockets
    #: names of the variables that Kafka's start scripts look at; None if they may not be seen.
    variables: tuple[str, ...] | None = None
    #: ``SUPERVISOR_PROCESS_NAME`` and ``SUPERVISOR_GROUP_NAME``, which supervisord sets.
    supervised: Mapping[str, str] = field(default_factory=dict)
    parents: tuple[SeenParent, ...] = ()  #: what is above it, the nearest first; without pid 1
    #: what systemd says of the service that it runs in; empty if it runs in none.
    unit: Mapping[str, str] = field(default_factory=dict)
    config: str = ""  #: its properties file; empty if none is named, or only from a folder that may not be seen
    config_owner: str = ""  #: that file's user; empty if it may not be seen
    #: what that file says of the worker's group and listeners; None if it may not be read.
    settings: Mapping[str, str] | None = None
    started_in: tuple[str, ...] = ()  #: logs that hold printed settings of a worker
    parent_logs: tuple[str, ...] = ()  #: such logs that its parent writes, as a supervisor does for what it runs
    #: ``*.pid`` in its folder or beside its file, which hold its pid or that of what started it.
    pid_files: tuple[str, ...] = ()

    @property
    def is_worker(self) -> bool:
        return names_worker(self.command)

    def is_worker_of(self, group_id: str) -> bool:
        """Whether it is a worker of this group: by its class, or by the file that it is started with."""
        if self.settings is not None and self.settings.get("group.id") != group_id:
            return False
        return self.is_worker or bool(self.config)


@dataclass(frozen=True, slots=True)
class MachineLook:
    """What a machine shows to a login."""

    user: str  #: who has looked: the login, or root through sudo
    login: str  #: who is logged in
    groups: frozenset[str]  #: the login's groups
    #: per address, as ``/proc/net/tcp`` has it, the inodes of the sockets that listen there.
    listeners: Mapping[str, frozenset[int]]
    processes: tuple[SeenProcess, ...]  #: those that may be workers

    def listeners_at(self, url: str) -> frozenset[int]:
        addresses = re.compile(listening_at(url))
        return frozenset().union(*(found for address, found in self.listeners.items() if addresses.fullmatch(address)))


def look_at(machine: Machine, ports: Iterable[int], *, sudo: bool = False) -> MachineLook:
    """Look for workers on a machine. Changes nothing there."""
    words = ["sh", "-s", "--", *(str(port) for port in sorted(set(ports)))]
    answer = machine.run(["sudo", "-n", *words] if sudo else words, stdin=SCRIPT.encode(), seconds=LOOK_SECONDS)
    facts = list(_facts(answer.out))
    if not facts or facts[-1][0] != "end":
        raise RefusedError(
            f"{machine.name or 'This machine'} cannot be searched for workers: {answer.problem}",
            expected=f"'{shlex.join(words[:2])}' runs as root by sudo -n" if sudo else "a POSIX shell, coreutils, grep",
            remedy="Leave --sudo out, or allow it for this search." if sudo else None,
        )
    return parse(facts)


def _facts(output: bytes) -> Iterator[tuple[str, bytes]]:
    """The lines of the script; others, such as what a login prints, are left out."""
    for line in output.splitlines():
        name, _, value = line.partition(b" ")
        try:
            yield name.decode("ascii"), base64.b64decode(value, validate=True)
        except (UnicodeDecodeError, binascii.Error):
            continue


def parse(facts: Sequence[tuple[str, bytes]]) -> MachineLook:
    begins = [number for number, (name, _) in enumerate(facts) if name == "process"]
    head = facts[: begins[0]] if begins else facts
    listeners: dict[str, set[int]] = {}
    login, user, groups = "", "", frozenset[str]()
    for name, value in head:
        words = _text(value).split()
        if name == "listener":
            listeners.setdefault(words[0], set()).add(int(words[1]))
        elif name == "login":
            login, user = words[:2]
        elif name == "groups":
            groups = frozenset(words)
    sections = (facts[begin:end] for begin, end in zip(begins, [*begins[1:], len(facts)], strict=True))
    return MachineLook(
        user=user,
        login=login,
        groups=groups,
        listeners={address: frozenset(inodes) for address, inodes in listeners.items()},
        processes=tuple(_process(section) for section in sections),
    )


def _process(facts: Sequence[tuple[str, bytes]]) -> SeenProcess:
    said = dict(facts)
    text = {name: _text(value) for name, value in facts}
    files = [line.partition(" -> ") for line in text.get("files", "").splitlines()]
    targets = [(link.split()[-1], target) for link, _, target in files if link.split()]
    settings = text.get("config-settings")
    return SeenProcess(
        pid=int(text["process"]),
        command=_words(said.get("command", b"")),
        name=text.get("name", ""),
        owner=text.get("owner", "").partition(" ")[0],
        cwd=text.get("cwd"),
        cgroups=tuple(line.split(":", 2)[2] for line in text.get("cgroup", "").splitlines() if line.count(":") >= 2),
        written=tuple(sorted({target for _, target in targets if _is_file(target)})) if "files" in said else None,
        output=next((target for number, target in targets if number == "1" and _is_file(target)), ""),
        sockets=frozenset(int(found[1]) for _, target in targets if (found := _SOCKET.fullmatch(target))),
        variables=tuple(text["variables"].split()) if "variables" in said else None,
        supervised=_pairs(text.get("supervised", "")),
        parents=tuple(_parents(facts)),
        unit=_pairs(text.get("unit", "")),
        config=text.get("config", ""),
        config_owner=text.get("config-owner", "").partition(" ")[0],
        settings=None if settings is None else _pairs(settings),
        started_in=tuple(_text(value) for name, value in facts if name == "started-in"),
        parent_logs=tuple(_text(value) for name, value in facts if name == "parent-log"),
        pid_files=tuple(_text(value) for name, value in facts if name == "pid-file"),
    )


def _parents(facts: Sequence[tuple[str, bytes]]) -> Iterator[SeenParent]:
    for (name, value), (_, command) in pairwise(facts):
        if name == "parent":
            pid, program, cwd = [*_text(value).split(" ", 2), "", ""][:3]
            yield SeenParent(int(pid), program, cwd, _words(command))


def _is_file(target: str) -> bool:
    return bool(re.match(r"/(?!dev/(?!shm/)|proc/)", target))


def _words(command: bytes) -> tuple[str, ...]:
    return tuple(_text(command).removesuffix("\0").split("\0")) if command else ()


def _pairs(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
