"""Who logs in over SSH, and by which way: keys, certificates, agent, passwords, OpenSSH's configuration, jumps."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

from airflow_eos_provider.connect.cluster.placement import MachineDescription, SshLogin
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.rollout.hosts.machine.machine import MachineLostError
from airflow_eos_provider.rollout.hosts.machine.machines import machine_of
from airflow_eos_provider.rollout.hosts.machine.ssh.ssh_machine import LoopThread
from airflow_eos_provider.rollout.hosts.machine.ssh.ssh_options import route
from tests.sshd import Sshd, keygen, make_key, public, running_sshd
from tests.waiting import until

#: Long enough to be searched for.
PASSWORD = "a-password-of-the-tests-4711"


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent of whoever runs the tests is none of theirs."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def configured(sshd: Sshd, folder: Path, text: str, *, name: str = "target") -> MachineDescription:
    """A machine that only an OpenSSH configuration describes."""
    config = folder / "config"
    config.write_text(text)
    return MachineDescription(name, connect_seconds=120.0, ssh_config=config, known_hosts=sshd.known_hosts)


def host(sshd: Sshd, *, key: Path | None = None) -> str:
    return f"  HostName {sshd.address}\n  Port {sshd.port}\n  User {sshd.user}\n" + (
        f"  IdentityFile {key}\n" if key else ""
    )


def answers(description: MachineDescription) -> bool:
    return machine_of(description).run(["echo", "yes"]).out == b"yes\n"


def refused(description: MachineDescription) -> str:
    """The error of a login that is refused."""
    with pytest.raises(ConfigurationError, match=r"does not let .* log in") as error:
        machine_of(description).run(["true"])
    return str(error.value)


class TestKeys:
    def test_a_wrong_one_is_refused_and_named(self, sshd: Sshd, tmp_path: Path) -> None:
        wrong = make_key(tmp_path / "wrong")
        error = refused(sshd.description(key_file=wrong))
        assert sshd.user in error
        assert f"the key {wrong}" in error
        assert wrong.read_text().splitlines()[1] not in error

    def test_its_text_is_enough(self, sshd: Sshd) -> None:
        assert answers(sshd.description(key_file=None, private_key=sshd.user_key.read_text()))

    @pytest.mark.parametrize("as_text", [False, True])
    def test_a_passphrase_opens_it(self, sshd: Sshd, tmp_path: Path, as_text: bool) -> None:
        key = tmp_path / "locked"
        key.write_bytes(sshd.user_key.read_bytes())
        key.chmod(0o600)
        keygen("-q", "-p", "-P", "", "-N", PASSWORD, "-f", str(key))
        place = {"key_file": None, "private_key": key.read_text()} if as_text else {"key_file": key}
        assert answers(sshd.description(**place, passphrase=PASSWORD))
        for passphrase in (None, "another"):
            with pytest.raises(ConfigurationError, match="cannot be read") as error:
                machine_of(sshd.description(**place, passphrase=passphrase)).run(["true"])
            assert "another" not in str(error.value)

    def test_text_that_is_none_is_said_and_not_shown(self, sshd: Sshd) -> None:
        with pytest.raises(ConfigurationError, match="cannot be read") as error:
            machine_of(sshd.description(key_file=None, private_key=f"no key {PASSWORD}")).run(["true"])
        assert PASSWORD not in str(error.value)

    def test_a_file_that_is_not_there_is_said(self, sshd: Sshd, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"cannot be read.*nowhere"):
            machine_of(sshd.description(key_file=tmp_path / "nowhere")).run(["true"])

    def test_the_agents_are_tried(self, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        socket = tmp_path / "agent"
        with subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL) as agent:
            try:
                monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
                description = configured(sshd, tmp_path, f"Host target\n{host(sshd)}")
                adding = ["ssh-add", "-q", str(sshd.user_key)]
                until(lambda: subprocess.run(adding, capture_output=True).returncode == 0, "the agent", seconds=60)
                assert answers(description)
                locked = configured(sshd, tmp_path, f"Host target\n{host(sshd)}  IdentitiesOnly yes\n")
                assert "agent" in refused(replace(locked, connect_seconds=90.0))
                named = f"Host target\n{host(sshd, key=Path(f'{sshd.user_key}.pub'))}  IdentitiesOnly yes\n"
                assert answers(replace(configured(sshd, tmp_path, named), connect_seconds=80.0))
            finally:
                agent.send_signal(signal.SIGTERM)

    def test_an_agent_that_is_gone_is_no_obstacle(
        self, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "gone"))
        assert answers(configured(sshd, tmp_path, f"Host target\n{host(sshd, key=sshd.user_key)}"))


class TestCertificates:
    def test_a_users_is_taken(self, tmp_path: Path) -> None:
        authority, key = make_key(tmp_path / "authority"), make_key(tmp_path / "key")
        with running_sshd(tmp_path / "sshd", options={"TrustedUserCAKeys": f"{authority}.pub"}) as sshd:
            sshd.authorized_keys.write_text("")
            text = f"Host target\n{host(sshd, key=key)}"
            refused(configured(sshd, tmp_path, text))
            keygen("-q", "-s", str(authority), "-I", "of the tests", "-n", sshd.user, f"{key}.pub")
            certificate = key.with_name("key-cert.pub").rename(tmp_path / "elsewhere-cert.pub")
            text += f"  CertificateFile {certificate}\n  CertificateFile {tmp_path}/nowhere-cert.pub\n"
            assert answers(replace(configured(sshd, tmp_path, text), connect_seconds=90.0))

    @pytest.mark.parametrize(
        ("validity", "principal", "is_taken"),
        [
            ("always:forever", "127.0.0.1", True),
            ("20200101:20200102", "127.0.0.1", False),
            ("always:forever", "x", False),
        ],
    )
    def test_a_hosts_is_taken_from_its_authority(
        self, tmp_path: Path, validity: str, principal: str, is_taken: bool
    ) -> None:
        authority = make_key(tmp_path / "authority")
        folder = tmp_path / "sshd"
        sshd = Sshd(folder, options={"HostCertificate": str(folder / "host_key-cert.pub")})
        keygen("-q", "-s", str(authority), "-I", "t", "-h", "-n", principal, "-V", validity, f"{sshd.host_key}.pub")
        sshd.known_hosts.write_text(f"@cert-authority [127.0.0.1]:{sshd.port} {public(authority)}\n")
        try:
            sshd.start()
            if is_taken:
                assert answers(sshd.description())
                return
            with pytest.raises(ConfigurationError, match=r"host key of .* is not accepted"):
                machine_of(sshd.description()).run(["true"])
        finally:
            sshd.stop()


class TestOpenSshsConfiguration:
    def test_what_it_says_holds(self, sshd: Sshd, tmp_path: Path) -> None:
        included = tmp_path / "included"
        included.write_text(f"Host target\n{host(sshd)}  HostKeyAlias known-as\n  Ciphers aes256-ctr\n")
        (tmp_path / "known").write_text(f"known-as {public(sshd.host_key)}\n")
        text = (
            f"Include {included}\n"
            f'Match originalhost target exec "true"\n  IdentityFile {tmp_path}/missing\n'
            f"  IdentityFile {sshd.user_key}\n"
            f"Match originalhost other\n  User nobody\n"
            f"Host *\n  UserKnownHostsFile {tmp_path}/known\n  ControlMaster auto\n  ForwardAgent yes\n"
            "  RemoteCommand false\n  RequestTTY force\n  ServerAliveInterval 900\n"
        )
        assert answers(replace(configured(sshd, tmp_path, text), known_hosts=None))

    def test_a_proxy_command_is_used_and_ends_with_the_connection(self, sshd: Sshd, tmp_path: Path) -> None:
        proxy = tmp_path / "proxy.py"
        proxy.write_text(
            "import os, socket, sys, threading\n"
            f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
            "link = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
            "def up():\n"
            "    while data := os.read(0, 65536): link.sendall(data)\n"
            "    os._exit(0)\n"
            "threading.Thread(target=up, daemon=True).start()\n"
            "while data := link.recv(65536): os.write(1, data)\n"
        )
        text = f"Host target\n{host(sshd, key=sshd.user_key)}  ProxyCommand {sys.executable} {proxy} %h %p\n"
        assert answers(configured(sshd, tmp_path, text))
        assert (tmp_path / "pid").is_file()

    def test_a_jump_is_made_over_a_second_machine(self, sshd: Sshd, tmp_path: Path) -> None:
        with running_sshd(tmp_path / "jump") as jump:
            known = tmp_path / "known"
            known.write_text(jump.known_hosts.read_text() + sshd.known_hosts.read_text())
            text = f"Host target\n{host(sshd)}  ProxyJump jump\nHost jump\n{host(jump, key=jump.user_key)}"
            description = configured(sshd, tmp_path, text)
            description = replace(description, known_hosts=known, login=SshLogin(key_file=sshd.user_key))
            machine = machine_of(description)
            assert machine.run(["true"]).ok
            assert "Accepted publickey" in jump.log.read_text()
            assert jump.kill_sessions()
            assert machine.run(["true"]).ok

    def test_jumps_in_a_circle_are_said(self, sshd: Sshd, tmp_path: Path) -> None:
        description = configured(sshd, tmp_path, "Host target\n  ProxyJump other\nHost other\n  ProxyJump target\n")
        with pytest.raises(ConfigurationError, match="over more than 8 machines"):
            machine_of(description).run(["true"])

    def test_several_jumps_are_one_after_the_other(self, sshd: Sshd, tmp_path: Path) -> None:
        text = "Host target\n  ProxyJump a@one:2201,[::1]:2202,ssh://three\nHost one\n  ProxyJump zero\n"
        hops = route(configured(sshd, tmp_path, text))
        assert [(hop.name, hop.port) for hop in hops] == [
            ("zero", 22), ("one", 2201), ("::1", 2202), ("three", 22), ("target", 22),
        ]  # fmt: skip
        assert hops[1].user == "a"

    @pytest.mark.parametrize("text", ["Match nonsense x\n", 'Host "\n', "Host target\n  Port many\n"])
    def test_what_cannot_be_read_is_said(self, sshd: Sshd, tmp_path: Path, text: str) -> None:
        with pytest.raises(ConfigurationError, match=r"cannot be read: .*config line \d"):
            machine_of(configured(sshd, tmp_path, text)).run(["true"])

    @pytest.mark.parametrize("option", ["UserKnownHostsFile", "CertificateFile", "IdentityFile"])
    def test_a_folder_of_a_user_that_is_not_there_is_said(self, sshd: Sshd, tmp_path: Path, option: str) -> None:
        text = f"Host target\n  {option} ~no-such-user/file\n"
        with pytest.raises(ConfigurationError, match=r"~ in ~no-such-user/file cannot be expanded"):
            machine_of(replace(configured(sshd, tmp_path, text), known_hosts=None)).run(["true"])

    def test_a_condition_that_does_not_end_is_bounded(self, sshd: Sshd, tmp_path: Path) -> None:
        description = configured(sshd, tmp_path, 'Match exec "exec sleep 3"\n  User x\n')
        with pytest.raises(MachineLostError, match="Match exec"):
            machine_of(replace(description, connect_seconds=0.5)).run(["true"])


class _Server(asyncssh.SSHServer):
    """asyncssh's own server: plain sshd checks passwords by PAM, for which it would need a user of the machine."""

    interactive = False

    def password_auth_supported(self) -> bool:
        return not self.interactive

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == ("eos", PASSWORD)

    def kbdint_auth_supported(self) -> bool:
        return self.interactive

    def get_kbdint_challenge(self, username: str, lang: str, submethods: str) -> asyncssh.KbdIntChallenge:
        return "", "", "en", [("Password:", False)]

    def validate_kbdint_response(self, username: str, responses: asyncssh.KbdIntResponse) -> bool:
        return list(responses) == [PASSWORD]


async def _serve_command(process: asyncssh.SSHServerProcess[bytes]) -> None:
    assert process.command is not None
    child = await asyncio.create_subprocess_exec("sh", "-c", process.command, stdin=-1, stdout=-1, stderr=-1)
    await process.redirect(stdin=child.stdin, stdout=child.stdout, stderr=child.stderr)
    process.exit(await child.wait())
    await process.wait_closed()


@pytest.mark.parametrize("interactive", [False, True], ids=["password", "keyboard-interactive"])
def test_a_password_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interactive: bool) -> None:
    monkeypatch.setattr(_Server, "interactive", interactive)
    key = make_key(tmp_path / "host_key")
    thread = LoopThread()

    async def listen() -> asyncssh.SSHAcceptor:
        settings = {"server_factory": _Server, "process_factory": _serve_command, "encoding": None}
        return await asyncssh.listen("127.0.0.1", 0, server_host_keys=[str(key)], **settings)

    server = thread.run(listen(), seconds=60)
    (tmp_path / "config").write_text("")
    login = SshLogin(user="eos", port=server.get_port(), password=PASSWORD, host_key=public(key))
    description = MachineDescription("127.0.0.1", login=login, connect_seconds=120.0, ssh_config=tmp_path / "config")
    assert answers(description)
    wrong = f"{PASSWORD}-not"
    error = refused(replace(description, login=replace(login, password=wrong)))
    assert "Tried: a password" in error
    assert wrong not in error

    async def close() -> None:
        server.close()

    thread.run(close(), seconds=60)
    thread.loop.call_soon_threadsafe(thread.loop.stop)


def test_a_name_that_nothing_has_is_said(sshd: Sshd) -> None:
    with pytest.raises(MachineLostError, match="cannot be reached over SSH"):
        machine_of(sshd.description(ssh="no-such-machine.invalid")).run(["true"])


def test_nothing_shows_a_secret(sshd: Sshd) -> None:
    text = sshd.user_key.read_text()
    description = sshd.description(key_file=None, private_key=text, password=PASSWORD, passphrase=f"{PASSWORD}-too")
    hops = route(replace(description, login=replace(description.login, passphrase=None)))
    shown = f"{description!r} {hops!r} {hops[0]} {machine_of(description)!r}"
    assert PASSWORD not in shown
    assert text.splitlines()[1] not in shown
    assert PASSWORD not in str(EosError(f"something repeats {PASSWORD}"))
