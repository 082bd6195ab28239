"""Commands over SSH against a real sshd: words, bytes, answers, host keys, logins, and connections that are lost."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from airflow_eos_provider.connect.cluster.placement import MachineDescription, SystemdUnit
from airflow_eos_provider.connect.cluster.worker import WorkerDescription
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.rollout.hosts.choose import host_of
from airflow_eos_provider.rollout.hosts.machine.machine import CommandError, MachineLostError
from airflow_eos_provider.rollout.hosts.machine.machines import machine_of
from airflow_eos_provider.rollout.hosts.machine.ssh import connection, ssh_machine
from airflow_eos_provider.rollout.hosts.machine.ssh.connection import HostKeyError
from airflow_eos_provider.rollout.hosts.machine.ssh.ssh_machine import SshMachine
from airflow_eos_provider.rollout.hosts.machine.ssh.ssh_session import REMOTE_COMMAND, on_stdin
from airflow_eos_provider.rollout.hosts.machine.this_machine import ThisMachine
from tests.ctrl_c import take_ctrl_c
from tests.missing import not_run
from tests.sshd import Sshd, make_key, public, running_sshd
from tests.waiting import until

#: Words that shells, ``read`` or ``exec`` may take for something else.
WORDS = (
    "two words", "", " ", "\t tab ", "'", '"', "$HOME", "$(id)", "`id`", ";", "&", "|", ">", "*", "~", "\\", "\\n",
    "a\\", "!", "!!", "#", "-n", "--", "-", "%s", "%d", "ü", "日本", "\r", "\x01\x7f", "(", "{a,b}", "=",
    "eos: the command begins",
)  # fmt: skip


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Sshd]:
    """An sshd of this test alone."""
    with running_sshd(tmp_path / "sshd") as sshd:
        yield sshd


@pytest.fixture(params=["this machine", "ssh"])
def machine(request: pytest.FixtureRequest) -> ThisMachine | SshMachine:
    """What holds for both."""
    if request.param == "ssh":
        return SshMachine(request.getfixturevalue("sshd").description())
    return ThisMachine()


def runs(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


class TestACommand:
    def test_its_words_arrive_as_they_are(self, machine: ThisMachine | SshMachine) -> None:
        out = machine.run(["printf", "%s\\0", *WORDS]).out
        assert out.decode().split("\0")[:-1] == list(WORDS)

    def test_words_are_bytes_of_any_encoding(self, machine: ThisMachine | SshMachine) -> None:
        """File names are; a shell with marks of its own in its strings must not take them for those."""
        every = bytes(number for number in range(1, 256) if number != ord("\n"))
        assert machine.run(["printf", "%s", os.fsdecode(every)]).out == every

    @pytest.mark.parametrize("words", [[], [""], ["-x"], ["true", "a\nb"], ["true", "a\0b"]])
    def test_words_that_cannot_travel_are_refused(self, machine: ThisMachine | SshMachine, words: list[str]) -> None:
        with pytest.raises(ValueError, match="word"):
            machine.run(words)

    def test_what_it_reads_and_prints_are_bytes(self, machine: ThisMachine | SshMachine) -> None:
        given = bytes(range(256)) * 4096
        assert machine.run(["cat"], stdin=given).out == given

    def test_what_it_does_not_read_holds_up_nothing(self, machine: ThisMachine | SshMachine) -> None:
        assert machine.run(["true"], stdin=bytes(4 * 1024 * 1024)).ok

    @pytest.mark.parametrize(
        ("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", -9), ("kill -15 $$", -15), ("exit 255", 255)]
    )
    def test_its_end_is_known(self, machine: ThisMachine | SshMachine, script: str, code: int) -> None:
        answer = machine.run(["sh", "-c", f"echo out; echo err >&2; {script}"])
        assert (answer.exit_code, answer.out, answer.err) == (code, b"out\n", b"err\n")

    def test_its_end_is_not_that_of_its_streams(self, machine: ThisMachine | SshMachine) -> None:
        assert machine.run(["sh", "-c", "exec >&- 2>&-; sleep 0.2; exit 3"]).exit_code == 3

    def test_a_program_that_is_not_there_is_127(self, machine: ThisMachine | SshMachine) -> None:
        answer = machine.run(["no-such-program", "x"])
        assert (answer.exit_code, answer.out) == (127, b"")
        assert "no-such-program" in answer.problem

    def test_it_speaks_english_and_finds_the_systems_programs(self, machine: ThisMachine | SshMachine) -> None:
        locale, path = machine.run(["sh", "-c", 'echo "$LC_ALL"; echo "$PATH"']).out.decode().splitlines()
        assert locale == "C"
        assert "/usr/sbin" in path.split(":")

    def test_it_has_its_time(self, machine: ThisMachine | SshMachine, tmp_path: Path) -> None:
        pid = tmp_path / "pid"
        for seconds in (0.5, 5.0, 20.0):  # a busy machine may end it before it has begun
            with pytest.raises(MachineLostError, match=f"did not end within {seconds:g} s") as lost:
                machine.run(["sh", "-c", 'echo $$ >"$1"; sleep 600 & wait', "sh", str(pid)], seconds=seconds)
            assert lost.value.may_have_run
            if pid.exists():
                break
        until(lambda: not runs(int(pid.read_text())), "the end of the command", seconds=30)

    def test_it_may_not_print_without_end(self, machine: ThisMachine | SshMachine) -> None:
        with pytest.raises(CommandError, match="more than 16 MiB"):
            machine.run(["cat", "/dev/zero"], seconds=60)

    def test_what_is_detached_leads_a_session(self, machine: ThisMachine | SshMachine) -> None:
        session, pid = machine.detached(["sh", "-c", "cut -d' ' -f6 /proc/$$/stat; echo $$"]).out.split()
        assert session == pid

    def test_what_goes_on_in_its_background_outlives_it(self, machine: ThisMachine | SshMachine) -> None:
        answer = machine.detached(["sh", "-c", "sleep 600 </dev/null >/dev/null 2>&1 & echo $!; cat"], stdin=b"read")
        pid, rest = answer.out.split(b"\n")
        assert (answer.exit_code, rest) == (0, b"read")
        assert runs(int(pid))
        os.kill(int(pid), signal.SIGKILL)

    def test_a_background_that_holds_its_streams_does_not_hold_up_its_answer(
        self, machine: ThisMachine | SshMachine
    ) -> None:
        answer = machine.detached(["sh", "-c", "sleep 600 & echo $!; exit 5"])
        assert answer.exit_code == 5
        os.kill(int(answer.out), signal.SIGKILL)

    def test_its_answer_shows_nothing_of_what_it_printed(self, machine: ThisMachine | SshMachine) -> None:
        assert "hidden" not in repr(machine.run(["echo", "hidden"]))


@pytest.mark.parametrize(
    "shell",
    ["sh", "bash", *(pytest.param(name, marks=pytest.mark.by_name) for name in ("zsh", "fish", "csh", "tcsh", "ksh"))],
)
def test_every_login_shell_takes_the_one_string(shell: str) -> None:
    given = on_stdin(["printf", "%s|", *WORDS], b"", 20.0)
    if shutil.which(shell) is None:
        not_run(f"{shell} is not installed")
    answer = subprocess.run([shell, "-c", REMOTE_COMMAND], input=given, capture_output=True, timeout=60)
    assert answer.stdout.partition(b"begins\n")[2].decode() == "".join(f"{word}|" for word in WORDS)


def test_words_that_arrive_only_in_part_are_not_executed(tmp_path: Path) -> None:
    """The connection was lost while they were written."""
    given = on_stdin(["touch", str(tmp_path / "one"), str(tmp_path / "two")], b"", 20.0)
    for end in range(len(given)):
        subprocess.run(["sh", "-c", REMOTE_COMMAND], input=given[:end], capture_output=True, timeout=60)
    assert not [*tmp_path.iterdir()]


def fingerprint(sshd: Sshd) -> str:
    words = ["ssh-keygen", "-lf", f"{sshd.host_key}.pub"]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.split()[1]


class TestHostKeys:
    def test_an_unknown_one_is_refused_and_shown(self, own: Sshd) -> None:
        own.known_hosts.write_text("")
        with pytest.raises(ConfigurationError) as error:
            machine_of(own.description()).run(["true"])
        for words in ("127.0.0.1", str(own.port), "ssh-ed25519", fingerprint(own), str(own.known_hosts), "ssh-keyscan"):
            assert words in str(error.value)

    @pytest.mark.parametrize("kind", ["ed25519", "rsa"])
    def test_another_one_than_the_known_is_refused_and_both_are_said(self, own: Sshd, kind: str) -> None:
        assert machine_of(own.description()).run(["true"]).ok
        worker = WorkerDescription(
            "http://127.0.0.1:1", config=Path("/etc/no"), machine=own.description(), service=SystemdUnit("connect")
        )
        known = fingerprint(own)
        own.swap_host_key(kind)
        problem = host_of(worker).observe().problem
        assert "another host key than the known one" in problem
        assert "It may be another machine" in problem
        assert known != fingerprint(own)
        assert {known, fingerprint(own)} == set(re.findall(r"SHA256:[^\s,.]+", problem))

    @pytest.mark.parametrize(
        "option", ["StrictHostKeyChecking no", "UserKnownHostsFile none", "UserKnownHostsFile /dev/null"]
    )
    def test_the_check_cannot_be_switched_off(self, own: Sshd, option: str) -> None:
        own.ssh_config.write_text(f"Host *\n  {option}\n  GlobalKnownHostsFile /dev/null\n")
        description = replace(own.description(), known_hosts=None)
        with pytest.raises(ConfigurationError, match="is unknown"):
            machine_of(description).run(["true"])

    def test_the_check_of_a_jump_cannot_be_switched_off(self, own: Sshd, sshd: Sshd) -> None:
        own.ssh_config.write_text(
            f"Host target\n  HostName 127.0.0.1\n  ProxyJump {own.user}@127.0.0.1:{own.port}\n"
            f"Host *\n  IdentityFile {own.user_key}\n  StrictHostKeyChecking no\n"
        )
        description = replace(sshd.description(ssh="target"), ssh_config=own.ssh_config)  # knows the target alone
        with pytest.raises(ConfigurationError, match=f"host key of 127.0.0.1 port {own.port} is unknown"):
            machine_of(description).run(["true"])

    def test_a_pinned_one_is_the_only_one(self, own: Sshd, tmp_path: Path) -> None:
        own.known_hosts.write_text("")
        assert machine_of(own.description(host_key=public(own.host_key))).run(["true"]).ok
        own.know()
        other = public(make_key(tmp_path / "other"))
        with pytest.raises(ConfigurationError, match="another host key") as error:
            machine_of(own.description(host_key=other)).run(["true"])
        assert "host_key in an Airflow connection" in str(error.value)
        assert "ssh-keygen -R" not in str(error.value)

    def test_one_that_is_no_key_is_said(self, sshd: Sshd) -> None:
        with pytest.raises(ConfigurationError, match="is no public key"):
            machine_of(sshd.description(host_key="nonsense")).run(["true"])

    def test_a_hashed_entry_is_found_and_a_line_that_cannot_be_read_is_passed_over(self, own: Sshd) -> None:
        subprocess.run(["ssh-keygen", "-Hf", str(own.known_hosts)], check=True, capture_output=True, timeout=60)
        assert "127.0.0.1" not in own.known_hosts.read_text()
        own.known_hosts.write_text("@nonsense a b\nx\n" + own.known_hosts.read_text())
        assert machine_of(own.description()).run(["true"]).ok

    def test_a_key_of_another_name_at_the_same_address_is_not_taken(self, own: Sshd) -> None:
        """A name that leads to another known machine is not that machine."""
        with pytest.raises(ConfigurationError, match="is unknown"):
            machine_of(own.description(ssh="localhost")).run(["true"])

    def test_a_revoked_one_is_refused(self, own: Sshd) -> None:
        own.known_hosts.write_text(own.known_hosts.read_text() + f"@revoked * {public(own.host_key)}\n")
        with pytest.raises(ConfigurationError, match="revoked"):
            machine_of(own.description()).run(["true"])


class TestLostConnections:
    def test_one_that_was_lost_before_a_command_is_replaced(self, own: Sshd) -> None:
        machine = machine_of(own.description())
        assert machine.run(["true"]).ok
        assert own.kill_sessions()
        assert machine.run(["true"]).ok

    def test_one_that_is_lost_within_a_command_says_so_and_the_next_is_new(self, own: Sshd, tmp_path: Path) -> None:
        machine, pid = machine_of(own.description()), tmp_path / "pid"
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(machine.run, ["sh", "-c", 'echo $$ >"$1"; sleep 600', "sh", str(pid)], seconds=60)
            until(lambda: pid.exists() and pid.read_text().strip(), "the command", seconds=30)
            own.kill_sessions()
            with pytest.raises(MachineLostError, match="lost within a command") as lost:
                answer.result(60)
        assert lost.value.may_have_run
        assert machine.run(["true"]).ok
        os.killpg(os.getpgid(int(pid.read_text())), signal.SIGKILL)  # its machine would do it after its 60 seconds

    def test_one_that_is_silent_is_replaced_too(self, own: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
        """As a machine that was cut off without a word; its sshd processes are stopped."""
        monkeypatch.setattr(connection, "_BEGIN_SECONDS", 1.0)
        machine = machine_of(own.description())
        assert machine.run(["true"]).ok
        silent = own.session_pids()
        assert silent
        for pid in silent:
            os.kill(pid, signal.SIGSTOP)
        assert machine.run(["true"]).ok
        assert set(own.session_pids()) - set(silent)

    def test_a_machine_that_does_not_answer_has_not_run_it(self, own: Sshd) -> None:
        machine = machine_of(own.description())
        assert machine.run(["true"]).ok
        own.stop()
        with pytest.raises(MachineLostError, match="cannot be reached") as lost:
            machine.run(["true"])
        assert not lost.value.may_have_run
        own.start()
        until(lambda: _answers(machine.run), "the machine to be back", seconds=30)

    def test_what_was_detached_outlives_connection_and_session(self, own: Sshd) -> None:
        out = machine_of(own.description()).detached(["sh", "-c", "sleep 600 </dev/null >/dev/null 2>&1 & echo $!"]).out
        own.stop()
        assert runs(int(out))
        os.kill(int(out), signal.SIGKILL)

    def test_a_machine_that_is_asked_by_many_at_once_is_asked_once(self, own: Sshd) -> None:
        own.known_hosts.write_text("")
        machine = machine_of(own.description())
        before = own.log.read_text().count("Connection from 127.0.0.1")
        with ThreadPoolExecutor(20) as pool:
            errors = [each.exception(60) for each in [pool.submit(machine.run, ["true"]) for _ in range(20)]]
        assert {type(error) for error in errors} == {HostKeyError}
        assert own.log.read_text().count("Connection from 127.0.0.1") - before <= 2


class TestOneConnection:
    def test_it_serves_forty_threads_at_once(self, sshd: Sshd) -> None:
        machine = machine_of(sshd.description())
        assert machine.run(["true"]).ok
        before = sshd.log.read_text().count("Accepted publickey")
        with ThreadPoolExecutor(40) as pool:
            answers = [*pool.map(lambda number: machine.run(["echo", str(number)], seconds=60).out, range(40))]
        assert answers == [f"{number}\n".encode() for number in range(40)]
        assert sshd.log.read_text().count("Accepted publickey") == before

    @pytest.mark.parametrize("most", [1, 2])
    def test_it_takes_fewer_sessions_where_sshd_does(self, tmp_path: Path, most: int) -> None:
        with running_sshd(tmp_path / "few", options={"MaxSessions": str(most)}) as few, ThreadPoolExecutor(8) as pool:
            machine = machine_of(few.description())
            assert all(pool.map(lambda _: machine.run(["true"], seconds=60).ok, range(16)))

    def test_where_sshd_takes_no_session_that_is_said(self, tmp_path: Path) -> None:
        with (
            running_sshd(tmp_path / "none", options={"MaxSessions": "0"}) as none,
            pytest.raises(MachineLostError, match="no command begins there") as lost,
        ):
            machine_of(none.description()).run(["true"])
        assert not lost.value.may_have_run

    def test_it_is_not_carried_over_a_fork(self, sshd: Sshd) -> None:
        """Airflow's LocalExecutor forks."""
        machine = machine_of(sshd.description())
        assert machine.run(["true"]).ok
        parents = ssh_machine._CONNECTIONS
        child = os.fork()
        if child == 0:
            code = 1
            with contextlib.suppress(BaseException):
                code = 0 if ssh_machine._CONNECTIONS is not parents and machine.run(["echo", "x"]).out == b"x\n" else 2
            os._exit(code)
        assert os.waitstatus_to_exitcode(_waited(child)) == 0
        before = sshd.log.read_text().count("Accepted publickey")
        assert machine.run(["true"]).ok
        assert sshd.log.read_text().count("Accepted publickey") == before

    def test_a_fork_does_not_hold_it_open(self, own: Sshd, tmp_path: Path) -> None:
        """The parent is killed, and its child goes on."""
        pid = tmp_path / "pid"
        act = (
            'run(["true"])\nimport os, threading\nchild = os.fork()\n'
            f"child and PosixPath({str(pid)!r}).write_text(str(child))\nthreading.Event().wait(120)"
        )
        with _python(own.description(), act) as process:
            until(lambda: pid.exists() and pid.read_text(), "the fork", seconds=60)
            assert own.session_pids()
            process.kill()
            try:
                until(lambda: not own.session_pids(), "the end of the connection", seconds=20)
                assert runs(int(pid.read_text()))
            finally:
                os.kill(int(pid.read_text()), signal.SIGKILL)

    def test_it_is_closed_when_it_is_idle(self, own: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connection, "IDLE_SECONDS", 0.2)
        assert machine_of(own.description()).run(["true"]).ok
        until(lambda: not own.session_pids(), "the end of the connection", seconds=30)

    def test_a_ctrl_c_ends_the_wait_for_a_command(self, sshd: Sshd, tmp_path: Path) -> None:
        """The command there goes on until its own limit."""
        pid = tmp_path / "pid"
        with _python(
            sshd.description(), f'run(["sh", "-c", "echo $$ >{pid}; exec sleep 600"], seconds=600)'
        ) as process:
            until(lambda: pid.exists() and pid.read_text().strip(), "the command", seconds=60)
            try:
                process.send_signal(signal.SIGINT)
                assert process.wait(60) == -signal.SIGINT
            finally:
                os.kill(int(pid.read_text()), signal.SIGKILL)

    @pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
    def test_a_process_that_is_killed_leaves_nothing_there(
        self, sshd: Sshd, tmp_path: Path, end: signal.Signals
    ) -> None:
        pid = tmp_path / "pid"
        with _python(sshd.description(), f'run(["sh", "-c", "echo $$ >{pid}; sleep 600"], seconds=6)') as process:
            until(lambda: pid.exists() and pid.read_text().strip(), "the command", seconds=60)
            process.send_signal(end)
            process.wait(60)
        until(lambda: not runs(int(pid.read_text())), "the end of the command", seconds=30)

    def test_a_process_ends_with_its_connections(self, own: Sshd) -> None:
        with _python(own.description(), 'run(["true"])') as process:
            assert process.wait(60) == 0
        until(lambda: not own.session_pids(), "the end of the connection", seconds=30)


class TestAccounts:
    def test_what_the_login_shells_files_print_is_no_output(self, tmp_path: Path) -> None:
        """bash reads ``~/.bashrc`` when sshd starts it; a forced command prints here what is written there."""
        noisy = tmp_path / "noisy"
        noisy.write_text('#!/bin/sh\necho welcome\necho hello >&2\nexec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n')
        noisy.chmod(0o755)
        with running_sshd(tmp_path / "noise", options={"ForceCommand": str(noisy)}) as sshd:
            assert machine_of(sshd.description()).run(["echo", "answer"]).out == b"answer\n"

    def test_an_account_that_runs_no_commands_is_said(self, tmp_path: Path) -> None:
        with (
            running_sshd(tmp_path / "forced", options={"ForceCommand": "echo not available; exit 1"}) as sshd,
            pytest.raises(CommandError, match="runs no commands: exit code 1, not available"),
        ):
            machine_of(sshd.description()).run(["true"])


def test_many_machines_behind_one_address_are_logged_in_to_without_one_being_dropped(tmp_path: Path) -> None:
    """Ten logins at once, as sshd takes unless it is configured otherwise; here it drops every further one."""
    with running_sshd(tmp_path, options={"MaxStartups": "10:100:100"}) as sshd:
        described = [replace(sshd.description(), connect_seconds=180.0 + number / 100) for number in range(30)]
        with ThreadPoolExecutor(len(described)) as pool:
            answers = list(pool.map(lambda each: machine_of(each).run(["true"]).exit_code, described))
    assert answers == [0] * len(described)


def test_without_asyncssh_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "airflow_eos_provider.rollout.hosts.machine.ssh.connection", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'airflow-eos-provider\[ssh\]'"):
        machine_of(MachineDescription("connect-1")).run(["true"])


def test_asyncssh_is_not_imported_before_a_machine_is_asked() -> None:
    program = "import sys, airflow_eos_provider.rollout.hosts.machine.machines; assert 'asyncssh' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def _answers(run: Callable[..., object]) -> bool:
    with contextlib.suppress(MachineLostError):
        run(["true"])
        return True
    return False


def _waited(child: int) -> int:
    """The status of a child that ends within a minute."""
    deadline = threading.Timer(60, lambda: os.kill(child, signal.SIGKILL))
    deadline.start()
    try:
        return os.waitpid(child, 0)[1]
    finally:
        deadline.cancel()


@contextlib.contextmanager
def _python(description: MachineDescription, act: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own that does something with the machine."""
    program = (
        "from pathlib import Path, PosixPath\n"
        "from airflow_eos_provider.connect.cluster.placement import *\n"
        "from airflow_eos_provider.rollout.hosts.machine.machines import machine_of\n"
        f"machine_of({description!r}).{act}\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stderr=subprocess.DEVNULL, preexec_fn=take_ctrl_c
    ) as process:
        try:
            yield process
        finally:
            process.kill()
