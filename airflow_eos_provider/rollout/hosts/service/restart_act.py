"""The restart of one worker as one act on the worker's machine: its instructions, and the record of its progress.

``restart_act.sh``, a shell of its own on that machine, carries it out. So it ends in a running worker or in a recorded
failure, even if the controller, the connection or the login ends before. The record is in a folder
``airflow_eos_provider`` next to the worker's pid file; without a pid file in the description, in
``${XDG_STATE_HOME:-$HOME/.local/state}`` of the login's user. It has none of the worker's variables. The controller of
the roll waits until the record is final, reports it, and removes it.

The script reads its instructions as lines of its standard input: no word and no variable is part of a script or of a
command line.
"""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import re
import secrets
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Literal, TypeVar
from urllib.parse import urlsplit

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.errors import ConfigurationError, EosError, RefusedError
from airflow_eos_provider.redaction import redact, secrets_of
from airflow_eos_provider.rollout.hosts.address import port_of
from airflow_eos_provider.rollout.hosts.host import (
    Moment,
    OnEvent,
    RestartEvent,
    RestartRequest,
    WorkerStartError,
    moments_of,
    without_moments,
)
from airflow_eos_provider.rollout.hosts.machine.machine import (
    COMMAND_SECONDS,
    Answer,
    MachineLostError,
)
from airflow_eos_provider.rollout.hosts.machine.worker_log import WorkerLog
from airflow_eos_provider.rollout.hosts.service.service import Service, ServiceFacts

#: Schema of the record; one of another schema is not this version's act. Changing it breaks restarts in flight.
SCHEMA = 1

#: A started worker is watched until it listens, at most this many seconds; one that ends meanwhile has refused its
#: configuration.
EARLY_END_SECONDS = 10.0

#: After a worker has ended, its port must be free within this many seconds.
PORT_FREE_SECONDS = 15.0

#: After SIGKILL a process is gone within this many seconds, or hangs in the kernel.
KILL_SECONDS = 5.0

#: What a restart may take at most beside the grace of its stop.
RESTART_SECONDS = KILL_SECONDS + PORT_FREE_SECONDS + EARLY_END_SECONDS

#: What the act's own shell may take: a busy machine, records on a slow disk.
HELPER_SECONDS = 10.0

#: A machine that was lost while an act is under way is asked again for so long, beyond the act's own time.
LOST_SECONDS = 30.0

#: One look waits this long on the machine for something to be said, seconds.
_WATCH_SECONDS = 5.0

_LOOK_SECONDS = 0.2

#: The folder of records, and their suffix, as ``restart_act.sh`` has them. Changing them breaks restarts in flight.
STATE_FOLDER, RECORD_SUFFIX = "airflow_eos_provider", ".restart"

#: The shell of every machine; a test takes others, too.
SHELL = "/bin/sh"

#: Heads what carries an act out.
_ACT = "# --- the act ---"

_END_OF_SCRIPT = "# end of script"

#: Reads the script, and carries it out. ``read`` takes no byte beyond its line, so the rest is left to the script.
_LOAD = (
    "op=$1; name=$2; state=$3; shift 3; n=$(printf '\\n_'); n=${n%_}; script=; "
    f"while IFS= read -r line && [ \"$line\" != '{_END_OF_SCRIPT}' ]; do script=$script$line$n; done; "
    'eval "$script"'
)

#: Takes all input, lets a shell in a session of its own carry it out, and answers what that one says before it leaves.
#: ``setsid -f``: what a shell itself puts into the background ignores SIGINT, and so would a worker below it.
_BEGIN = (
    'all=$(cat && echo _) || exit 1; answer=$(printf "%s" "${all%_}" | '
    'if setsid -f true 2>/dev/null; then setsid -f "$0" -c "$@"; '
    'else { setsid "$0" -c "$@" <&3 & } 3<&0; fi); printf "%s\\n" "$answer"'
)

#: A variable that a shell can hand to a program, and none that it keeps to itself.
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHELLS_OWN = frozenset({"UID", "EUID", "PPID", "SHELLOPTS", "BASHOPTS", "IFS", "OPTIND"})


class Phase(StrEnum):
    """How far an act has come."""

    STOPPING = "stopping"
    STARTING = "starting"  #: the old process has ended
    STARTED = "started"  #: the new process runs, and its first seconds are watched
    DONE = "done"
    FAILED = "failed"

    @property
    def is_end(self) -> bool:
        return self in (Phase.DONE, Phase.FAILED)


class Failure(StrEnum):
    """Why an act has failed, as ``restart_act.sh`` writes it."""

    NOT_PERMITTED = "not permitted"  #: a process belongs to another user
    DOES_NOT_END = "does not end"  #: not even by SIGKILL; or its supervisor's command does not end it
    PORT_IS_HELD = "port is held"
    NO_PROGRAM = "no program"  #: the start command cannot be run
    ENDED_AT_ONCE = "ended at once"
    COMMAND_FAILED = "command failed"  #: the supervisor's restart command
    NOT_STARTED = "not started"  #: its supervisor has stopped it, and no other process runs


class Beginning(StrEnum):
    """What a machine answers to an act."""

    BEGUN = "begun"
    IN_FLIGHT = "in flight"  #: another act is; nothing was touched
    MOVED = "moved"  #: another process has come since the controller has looked; nothing was touched


@dataclass(frozen=True, slots=True)
class ActKey:
    """What makes two restarts the same act."""

    rollout: str = ""  #: the rollout that asks for it; empty if none does, and then no act is ever taken for this one
    replaces: str = ""  #: start token of the process that is to be replaced; empty if none runs
    config_sha256: str = ""  #: SHA-256 of the file that the worker is started with


@dataclass(frozen=True, slots=True)
class RestartTask:
    key: ActKey  #: what this act is known by
    #: ``commands``: a supervisor's own commands; ``started``: stopped by signals, started by ``words``.
    kind: Literal["commands", "started"]
    words: tuple[str, ...] = field(repr=False)  #: the restart command, or the start command
    stop_pid: int  #: the first process of the worker's family; 0 if none runs
    stop_ticks: int  #: its start, in clock ticks since its machine's boot
    grace_seconds: float  #: how long the worker may take to stop
    url: str  #: where the worker listens
    status: tuple[str, ...] = ()  #: the command that names the worker's pid
    cwd: str = "/"
    log: str = ""
    pid_file: str = ""
    pid_file_said: str = ""  #: the first word of the pid file, when it was decided what is to be stopped
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    act: str = field(default_factory=lambda: secrets.token_hex(8))  #: names this very act

    @property
    def seconds(self) -> float:
        """Within this time the act is over, apart from a machine that is suspended."""
        return self.grace_seconds + RESTART_SECONDS + HELPER_SECONDS

    def to_bytes(self) -> bytes:
        """The lines that the script reads."""
        lines = [
            *(("kind", self.kind), ("act", self.act), ("rollout", self.key.rollout), ("replaces", self.key.replaces)),
            *(("sha256", self.key.config_sha256), ("stop_pid", str(self.stop_pid))),
            *(("stop_ticks", str(self.stop_ticks)), ("listen", listening_at(self.url))),
            *(("grace", _hundredths(self.grace_seconds)), ("kill", _hundredths(KILL_SECONDS))),
            *(("port", _hundredths(PORT_FREE_SECONDS)), ("watch", _hundredths(EARLY_END_SECONDS))),
            *(("cwd", self.cwd), ("log", self.log), ("pid_file", self.pid_file)),
            ("pid_file_said", self.pid_file_said),
            *(("word", word) for word in self.words),
            *(("status", word) for word in self.status),
            *(("variable", f"{name}={value}") for name, value in self._variables()),
        ]
        return b"".join(_line(key, value) for key, value in lines) + b"end\n"

    def _variables(self) -> Iterator[tuple[str, str]]:
        for name, value in self.env.items():
            if not _VARIABLE.fullmatch(name) or name in _SHELLS_OWN:
                raise ConfigurationError(
                    f"The variable {name!r} cannot be set for a worker on another machine.",
                    expected="letters, digits and underscores, and no name that a shell keeps to itself",
                    remedy="Set it in a start script there.",
                )
            yield name, value


@dataclass(frozen=True, slots=True)
class RestartRecord:
    """How far one act has come."""

    key: ActKey
    act: str  #: names it
    phase: Phase
    pid: int = 0  #: the new process; 0 before it runs
    start: str = ""  #: names its start, as :attr:`Process.start` does
    failure: str = ""  #: why it has failed, as :class:`Failure`; empty if it has not
    detail: str = ""  #: in words, why it has failed, or the last line of that command. It may hold secrets
    events: tuple[RestartEvent, ...] = ()  #: what has happened, in order. Their words may hold secrets
    log_from: int = 0  #: size of the worker's log, in bytes, before the new process wrote to it
    is_in_flight: bool = False  #: whether its helper is still at it


@dataclass(frozen=True, slots=True)
class RecordLook:
    record: RestartRecord | None  #: None if there is none that this version understands
    path: str  #: where it stands
    seen: str = ""  #: names what was seen, for the next look


def parse_record(lines: list[str], *, answered_at: float) -> RestartRecord | None:
    """A record as ``restart_act.sh`` writes and shows it; None if it is not whole, or of another schema."""
    if "end" not in lines or lines[0] != f"schema {SCHEMA}":
        return None
    end = lines.index("end")
    own = [line.partition(" ") for line in lines[:end]]
    fields = {key: value for key, _, value in own if key != "event"}
    try:
        boot = fields["helper"].split()[2]
        return RestartRecord(
            key=ActKey(fields["rollout"], fields["replaces"], fields["sha256"]),
            act=fields["act"],
            phase=Phase(fields["phase"]),
            pid=int(fields["pid"]),
            start=f"{boot}/{fields['pid']}/{fields['ticks']}" if int(fields["pid"]) else "",
            failure=fields["failure"],
            detail=fields["detail"],
            events=tuple(_events(lines[:end], _booted_at(lines[end:], boot, answered_at))),
            log_from=int(fields["log_from"]),
            is_in_flight="at_work yes" in lines and not Phase(fields["phase"]).is_end,
        )
    except (KeyError, ValueError, IndexError):
        return None


def _events(lines: list[str], booted_at: float | None) -> Iterator[RestartEvent]:
    """The events of a record. Where one is a moment, the line before it says which, in hundredths of the uptime."""
    moment, at = "", ""
    for key, _, value in (line.partition(" ") for line in lines):
        if key == "moment":
            moment, _, at = value.partition(" ")
        elif key == "event":
            if booted_at is not None and moment in set(Moment) and at.isdigit():
                yield RestartEvent(value, Moment(moment), booted_at + int(at) / 100)
            else:
                yield RestartEvent(value)
            moment, at = "", ""


def _booted_at(lines: list[str], boot: str, answered_at: float) -> float | None:
    """When the uptime of a record began, by this machine's clock; None where its machine has booted since."""
    told = (line.removeprefix("uptime ") for line in lines if line.startswith("uptime "))
    now, _, boot_now = next(told, "").partition(" ")
    return answered_at - int(now) / 100 if now.isdigit() and boot_now == boot else None


def record_name(worker: WorkerDescription) -> str:
    """The name under which a worker's record stands on its machine. Changing it breaks restarts in flight."""
    digest = hashlib.sha256(f"{worker.worker_id}\0{worker.config}".encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9-]', '_', worker.worker_id)}-{digest}"


def record_path(worker: WorkerDescription) -> Path | None:
    """Where the record of a worker that is started stands; None where only its machine knows."""
    if worker.pid_file is None:
        return None
    return worker.pid_file.parent / STATE_FOLDER / f"{record_name(worker)}{RECORD_SUFFIX}"


def listening_at(url: str) -> str:
    """The lines of ``/proc/net/tcp`` and ``tcp6`` that stand for a worker's address, as an extended expression.

    Of a loopback address, that one and the wildcard are meant: several machines of a lab share their ports. Any other
    address may be a name for the machine that it does not know itself by (NAT, ``/etc/hosts``): its port alone counts.
    """
    port = f"{port_of(url):04X}"
    try:
        address = ipaddress.ip_address(urlsplit(url).hostname or "")
    except ValueError:
        return f"[0-9A-F]+:{port}"
    if not address.is_loopback:
        return f"[0-9A-F]+:{port}"
    mapped = address.packed if address.version == 6 else b"\0" * 10 + b"\xff\xff" + address.packed
    written = {*_orders(address.packed), *_orders(mapped), "0" * 8, "0" * 32}
    return f"({'|'.join(sorted(written))}):{port}"


def _orders(packed: bytes) -> tuple[str, str]:
    """An address as the kernel prints it: words of 32 bits in the machine's own byte order."""
    little = b"".join(packed[start : start + 4][::-1] for start in range(0, len(packed), 4))
    return little.hex().upper(), packed.hex().upper()


@functools.cache
def _script(*, of_act: bool = False) -> bytes:
    """The script without its comments, and the line that ends it."""
    text = resources.files(__package__).joinpath("restart_act.sh").read_text(encoding="utf-8")
    if not of_act:
        text = text.partition(_ACT)[0]
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return "".join(f"{line}\n" for line in (*lines, _END_OF_SCRIPT)).encode()


def _line(key: str, value: str) -> bytes:
    r"""One line. ``printf %b`` reads ``\0ooo`` as a byte; three digits, so that a digit behind it stays one."""
    data = value.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise ConfigurationError(f"A {key} of a worker's command holds a NUL byte.")
    return key.encode() + b" " + data.replace(b"\\", b"\\0134").replace(b"\n", b"\\0012") + b"\n"


def _hundredths(seconds: float) -> str:
    return str(round(seconds * 100))


F = TypeVar("F", bound=ServiceFacts)

_WITHHELD = "***"

#: Where another act or process comes after a look, there is another look, so often.
_ATTEMPTS = 3


class ActingService(Service):
    """A service whose worker is restarted by an act of its machine."""

    @abstractmethod
    def _task(self, facts: ServiceFacts, key: ActKey, grace_seconds: float) -> RestartTask:
        """What is to be done, given how the process is now; refuses what may not be touched."""

    def restart(self, request: RestartRequest) -> None:
        def shown(event: RestartEvent) -> None:
            request.on_event(replace(event, words=self._shown(event.words)))

        key = ActKey(request.rollout, request.replaces, request.config_sha256)
        for _ in range(_ATTEMPTS):
            look = self._earlier_act(key, request.stop_grace_seconds, shown)
            if look is None:
                facts = self.look()
                if facts.has_done(request):
                    request.on_event(facts.restarted_already)
                    return
                task = self._task(facts, key, request.stop_grace_seconds)
                request.permit("stop" if task.stop_pid else "start")
                if self.begin_act(task, shown) is not Beginning.BEGUN:
                    continue
                look = self.follow_act(task.seconds, shown)
            if look.record is None and self.look().has_done(request):  # reported by another controller, or swept away
                return
            return self._report_outcome(look.record, look.path)
        raise RefusedError(
            f"{self.worker.worker_id} was not restarted: at each of {_ATTEMPTS} attempts, its process was not the one "
            "expected, or another restart had begun. Nothing was stopped.",
            remedy=f"Find out who else restarts it on {self.where}, then plan again.",
        )

    def _with_act(self, facts: F) -> F:
        """The same facts, with the last restart that no controller has reported yet."""
        record = self.look_at_act().record
        if record is None:
            return facts
        is_of_this_start = facts.top is not None and record.start == facts.top.start
        of_rollout = f" of rollout {record.key.rollout}" if record.key.rollout else ""
        return replace(
            facts,
            restart=f"a restart{of_rollout} is {record.phase}" if record.is_in_flight else None,
            restarted=moments_of(record.events) if is_of_this_start else (),
        )

    def _earlier_act(self, key: ActKey, grace_seconds: float, on_event: OnEvent) -> RecordLook | None:
        """An act that was begun before and not reported: the same one, over by now; None if there is none.

        One of another rollout, or before another change of the file, is waited for and then forgotten: it started the
        worker with what is no longer meant. So is one that was cut off together with its helper.
        """
        look = self.look_at_act()
        if look.record is None:
            return None
        is_same = bool(key.rollout) and look.record.key == key
        heard = on_event if is_same else without_moments(on_event)
        if look.record.is_in_flight:
            heard(RestartEvent("an earlier restart is still running; waiting for its end"))
        if look.record.is_in_flight or is_same:
            look = self.follow_act(grace_seconds + RESTART_SECONDS + HELPER_SECONDS, heard)
        record = look.record
        if record is None:
            return None
        is_same = bool(key.rollout) and record.key == key
        if record.is_in_flight or (is_same and record.phase.is_end):
            return look
        self.forget_act(record)
        return None

    def _report_outcome(self, record: RestartRecord | None, path: str) -> None:
        """Report once what an act has come to."""
        worker_id = self.worker.worker_id
        if record is not None and record.is_in_flight:
            raise RefusedError(
                f"The restart of {worker_id} is {record.phase} and late; it continues without this process.",
                remedy=f"Check what it waits for (usually a hanging disk); its record is {path} on {self.where}.",
            )
        failure = self._failure(record) if record is not None and record.phase is Phase.FAILED else None
        if record is not None:
            self.forget_act(record)
        if failure is not None:
            raise failure
        if record is None or not record.phase.is_end:
            found = f"it was {record.phase}" if record else f"its record {path} is gone"
            raise RefusedError(
                f"The restart of {worker_id} was cut off: {found}, and its helper on {self.where} has ended.",
                remedy="Apply the same plan again: it starts the worker.",
            )

    def _failure(self, record: RestartRecord) -> EosError:
        worker_id, detail = self.worker.worker_id, self._shown(record.detail)
        read_log = f"Correct what the log reports ({self.worker.log or 'see its supervisor'})."
        kind: type[EosError] = RefusedError
        match record.failure:
            case Failure.ENDED_AT_ONCE:
                kind, remedy = WorkerStartError, read_log
                found = f"{worker_id} (pid {record.pid}) ended right after its start. {self._log_tail(record)}"
            case Failure.NOT_STARTED:
                kind, remedy = WorkerStartError, read_log
                found = f"{worker_id} was stopped, and its supervisor did not start it; {detail}. "
                found += self._log_tail(record)
            case Failure.COMMAND_FAILED:
                found = f"The restart command of {worker_id} failed: {detail}."
                remedy = f"Run it on {self.where} and see what it reports; correct 'service', or allow it."
            case Failure.NO_PROGRAM:
                kind, found = ConfigurationError, f"The start command of {worker_id} cannot be run: {detail}."
                remedy = "Correct 'start', 'cwd', 'log' or 'pid_file' in the cluster description."
            case Failure.PORT_IS_HELD:
                found = f"{worker_id} was stopped and not started: its port is held by another process."
                remedy = f"Find out what that process is on {self.where}, and end its starter."
            case Failure.DOES_NOT_END:
                found = f"{worker_id} could not be stopped: {detail}."
                remedy = "Check what it waits for (usually a hanging disk)."
            case Failure.NOT_PERMITTED:
                found = f"{worker_id} could not be stopped: {detail}."
                remedy = "Log in as a user who may stop all of the worker's processes."
            case _:
                found = f"The restart of {worker_id} failed in its helper: {record.failure}: {detail}."
                remedy = "Check whether the worker runs, then apply the same plan again to resume."
        return kind(found, remedy=remedy)

    def _log_tail(self, record: RestartRecord) -> str:
        if self.worker.log is None:
            return "The description names no log."
        try:
            log = WorkerLog(self.machine, PurePosixPath(self.worker.log), sudo=self.worker.uses_sudo_for("log"))
            return f"Its log:\n{log.tail(record.log_from, secrets=self._secrets())}"
        except EosError as error:
            return f"Its log cannot be read: {error.found}"

    def _secrets(self) -> tuple[str, ...]:
        return secrets_of(dict(self.worker.env))

    def _shown(self, text: str) -> str:
        """What a command has printed may hold a secret."""
        for secret in self._secrets():
            text = text.replace(secret, _WITHHELD)
        return redact(text)

    def look_at_act(self) -> RecordLook:
        """The record of the last act that no controller has reported yet."""
        path = record_path(self.worker)
        if not self.machine.name and path is not None and not path.exists():
            return RecordLook(None, str(path))
        return self._act_of(self.machine.run(self._act_words("show"), stdin=_script()))

    def begin_act(self, task: RestartTask, on_event: OnEvent) -> Beginning:
        """Let the machine begin an act, which ends without this process."""
        stdin = _script(of_act=True) + task.to_bytes()
        words = [SHELL, "-c", _BEGIN, SHELL, _LOAD, "eos-restart", "begin", *self._act_place]
        try:
            answer = self.machine.detached(words, stdin=stdin)
        except MachineLostError as error:
            if not error.may_have_run:
                raise
            on_event(RestartEvent(f"the connection to {self.where} was lost; checking the restart there"))
            record = self._patiently(self.look_at_act, time.monotonic() + LOST_SECONDS).record
            if record is not None and record.act == task.act:
                return Beginning.BEGUN
            # An order that is given twice is carried out once: the record knows it.
            answer = self.machine.detached(words, stdin=stdin)
        if answer.warning:
            on_event(RestartEvent(answer.warning))
        said = answer.out.decode("utf-8", "replace").strip().rpartition("\n")[2]
        if said not in set(Beginning):
            raise self._not_begun(said, answer)
        return Beginning(said)

    def follow_act(self, seconds: float, on_event: OnEvent) -> RecordLook:
        """Follow an act until it is over, also over connections that are lost."""
        deadline = time.monotonic() + seconds
        reported, seen, act = 0, "", None
        while True:
            is_last_look = time.monotonic() >= deadline
            look = self._patiently(functools.partial(self._watch_act, seen), deadline + LOST_SECONDS)
            record = look.record
            if record is not None and record.act != act:
                reported, act = 0, record.act
            for event in record.events[reported:] if record else ():
                on_event(event)
                reported += 1
            seen = look.seen
            if record is None or not record.is_in_flight or is_last_look:
                return look

    def forget_act(self, record: RestartRecord) -> None:
        """Remove a record that was reported, and no other."""
        self.machine.run([*self._act_words("forget"), record.act], stdin=_script())

    def _watch_act(self, seen: str) -> RecordLook:
        words = [*self._act_words("watch"), seen, _hundredths(_WATCH_SECONDS)]
        return self._act_of(self.machine.run(words, stdin=_script(), seconds=_WATCH_SECONDS + COMMAND_SECONDS))

    def _patiently(self, look: Callable[[], RecordLook], give_up_at: float) -> RecordLook:
        while True:
            try:
                return look()
            except MachineLostError:
                if time.monotonic() >= give_up_at:
                    raise
                time.sleep(_LOOK_SECONDS)

    def _act_words(self, op: str) -> list[str]:
        return [SHELL, "-c", _LOAD, "eos-restart", op, *self._act_place]

    def _act_of(self, answer: Answer) -> RecordLook:
        lines = answer.out.decode("utf-8", "replace").split("\n")  # as the shell does; splitlines() has other ends, too
        fields = {key: value for key, _, value in (line.partition(" ") for line in lines)}
        path = fields.get("record", "")
        if not path:
            raise RefusedError(
                f"{self.where} does not report whether {self.worker.worker_id} is being restarted: {answer.problem}.",
                expected="a machine with Linux' /proc, a POSIX shell, coreutils and grep",
                remedy="Check this login's shell there.",
            )
        if "closed" in fields:
            raise RefusedError(
                f"This login may not read the record {path} on {self.where}.",
                remedy="Check its owner; a restart by that user may be running.",
            )
        return RecordLook(parse_record(lines, answered_at=time.time()), path, fields.get("seen", ""))

    def _not_begun(self, said: str, answer: Answer) -> RefusedError:
        match said.partition(" ")[0]:
            case "no":
                why = f"the record {said.removeprefix('no record ')} cannot be written"
                remedy = "Free some space, or let this login write there."
            case "not":
                why, remedy = "its instructions did not arrive complete", "Apply the same plan again."
            case _:
                why = f"the shell there answered {said[:200]!r} ({answer.problem})"
                remedy = "It needs a POSIX shell, coreutils, grep and setsid (util-linux)."
        return RefusedError(f"The restart on {self.where} has not begun: {why}. Nothing was stopped.", remedy=remedy)

    @property
    def _act_place(self) -> tuple[str, str]:
        """The name of its record, and the folder beside which records stand; empty for that of the login's user."""
        pid_file = self.worker.pid_file
        return record_name(self.worker), str(pid_file.parent) if pid_file is not None else ""
