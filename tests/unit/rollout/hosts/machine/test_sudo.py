"""Narrow rights, asked of the real sudo."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.rollout.hosts.machine.sudo import (
    PROGRAM_FOLDERS,
    Command,
    Sudo,
    asks_for_password,
    find_programs,
    granted,
    lines,
)
from tests.private_machine import PrivateMachine, private_machine

ECHO = {"echo": "/usr/bin/echo"}

#: All that can be printed and is no space, alone, within a word and at its ends.
PRINTABLE = [chr(code) for code in range(33, 127)] + ["ü", "日"]


@pytest.fixture(scope="module")
def shared() -> Iterator[PrivateMachine]:
    with private_machine() as machine:
        yield machine


@pytest.fixture
def machine(shared: PrivateMachine) -> PrivateMachine:
    shared.as_root("rm", "-f", "/etc/sudoers.d/eos")
    shared.commands.clear()
    return shared


def echo(*words: str) -> Command:
    return Command(("echo", *words), "kafka")


def test_the_words_of_a_line_are_those_that_run(machine: PrivateMachine) -> None:
    sudo = Sudo(machine)
    assert not sudo.run(echo("a:b", "c=d")).ok
    machine.grant(sudo.lines([echo("a:b", "c=d")]))
    assert sudo.run(echo("a:b", "c=d")).out == b"a:b c=d\n"
    assert machine.commands[-1] == ("sudo", "-n", "-u", "kafka", "--", "/usr/bin/echo", "a:b", "c=d")
    for other in (echo("a:b", "c=e"), echo("a:b"), echo("a:b", "c=d", "e"), echo(), Command(("echo", "a:b"), "root")):
        assert not sudo.run(other).ok, other


def test_each_printable_character_is_itself_and_no_pattern(machine: PrivateMachine) -> None:
    sudo = Sudo(machine)
    words = [text for char in PRINTABLE for text in (char, f"x{char}y", f"-x{char}", f"/{char}{char}")]
    words += ["^x$", "[a-z]", r"\*", r"a\\b", "--x=/a b".replace(" ", ",")]
    allowed = [echo(word, "/end") for word in words]
    machine.grant(sudo.lines(allowed))
    for command in allowed[:: len(allowed) // 40]:  # a start of sudo each
        assert sudo.run(command).ok, command
    special = [echo(word, "/end") for word in words if not word.isalnum() and word[0] == "x"]
    assert sudo.missing(special) == ()
    for other in ("xQQy", "Q", "xy", "/QQ", "aab", r"\a", r"a\b", "m"):
        assert not sudo.run(echo(other, "/end")).ok or echo(other, "/end") in allowed, other


def test_a_command_without_arguments_is_granted_without_any(machine: PrivateMachine) -> None:
    sudo = Sudo(machine)
    machine.grant(sudo.lines([Command(("true",), "kafka")]))
    assert sudo.run(Command(("true",), "kafka")).ok
    assert not sudo.run(Command(("true", "x"), "kafka")).ok


@pytest.mark.parametrize("word", ["a b", "", "a\tb", "a\xa0b"])
def test_a_word_with_a_space_is_refused_for_it_could_be_two(word: str) -> None:
    with pytest.raises(ConfigurationError, match="without spaces"):
        granted(echo("--", word), ECHO)


def test_sudo_takes_two_words_for_one_with_a_space(machine: PrivateMachine) -> None:
    """The reason for the refusal: if this fails one day, spaces may be granted."""
    machine.grant(["eos ALL=(kafka) NOPASSWD: /usr/bin/echo a b"])
    assert Sudo(machine).run(echo("a b")).ok
    assert Sudo(machine).run(echo("a", "b")).ok


def test_names_of_a_directory_service_and_numbers_are_written_as_sudo_reads_them(machine: PrivateMachine) -> None:
    names = ("eos@corp.example", "CORP\\eos", "#7101", "eos-1", "svc$")
    text = [line for name in names for line in lines(name, [Command(("echo", "a"), name)], ECHO)]
    machine.as_root("visudo", "-c", "-f", "-", stdin="".join(f"{line}\n" for line in text).encode())
    machine.grant(lines("#7101", [Command(("echo", "a"), "#7102")], ECHO))
    assert Sudo(machine).run(Command(("echo", "a"), "#7102")).ok


@pytest.mark.parametrize("name", ["ALL", "ADMINS", "%wheel", "+netgroup", "a b", "", "!eos", "a,b"])
def test_a_name_that_could_mean_more_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written"):
        lines(name, [echo("a")], ECHO)
    with pytest.raises(ConfigurationError, match="cannot be written"):
        lines("eos", [Command(("echo", "a"), name)], ECHO)


def test_what_is_missing_is_found_without_running_anything(machine: PrivateMachine) -> None:
    sudo = Sudo(machine)
    victim = machine.folder / "victim"
    victim.write_text("still here")
    granted_one, other = Command(("rm", "-f", "--", str(victim)), "kafka"), echo("a")
    assert sudo.missing([granted_one, other, Command(("id",))]) == (granted_one, other)
    machine.grant(sudo.lines([granted_one]))
    assert sudo.missing([granted_one, other]) == (other,)
    obstacle = sudo.obstacle([granted_one, other], "change")
    assert obstacle.act == "change"
    assert "'echo a' as kafka" in obstacle.what
    assert "eos hosts sudoers" in obstacle.remedy
    machine.grant(sudo.lines([granted_one, other]))
    assert sudo.obstacle([granted_one, other], "change") is None
    assert victim.read_text() == "still here"


def test_a_right_that_asks_for_a_password_is_none(machine: PrivateMachine) -> None:
    sudo = Sudo(machine)
    first, second = echo("a"), echo("b")
    line = sudo.lines([second])[0]
    machine.grant([*sudo.lines([first]), line.replace("NOPASSWD: ", "")])
    assert not sudo.run(second).ok
    assert sudo.missing([first, second]) == (second,)
    machine.grant([*sudo.lines([first]), line.replace("NOPASSWD: ", ""), line])
    assert sudo.missing([first, second]) == ()
    assert sudo.run(second).ok
    machine.grant(["Defaults:eos !authenticate", line.replace("NOPASSWD: ", "")])
    assert sudo.missing([second]) == ()
    assert sudo.run(second).ok


def test_a_right_to_everything_is_enough(machine: PrivateMachine) -> None:
    machine.grant(["eos ALL=(ALL) NOPASSWD: ALL"])
    assert Sudo(machine).missing([echo("a"), Command(("id",), "root")]) == ()
    listing = "Sudoers entry:\n    RunAsUsers: ALL\n    Commands:\n\tALL\n"
    assert asks_for_password(listing, echo("a"), ECHO)


def test_the_login_itself_needs_no_sudo(machine: PrivateMachine) -> None:
    sudo = Sudo(machine)
    own = Command(("id", "-un"), "eos")
    assert sudo.run(own).out == sudo.run(Command(("id", "-un"))).out == b"eos\n"
    assert sudo.lines([own, Command(("id",))]) == ()
    assert sudo.missing([own]) == ()
    assert not any(words[0] == "sudo" for words in machine.commands)


def test_a_program_is_looked_for_in_the_folders_of_the_system_alone(machine: PrivateMachine) -> None:
    assert find_programs(machine, ["cat", "test", "sh"]) == {
        "cat": "/usr/bin/cat",
        "test": "/usr/bin/test",
        "sh": "/usr/bin/sh",
    }
    assert not any("home" in folder for folder in PROGRAM_FOLDERS)
    with pytest.raises(ConfigurationError, match="no program 'no-such-program' on connect-1"):
        find_programs(machine, ["cat", "no-such-program"])


def test_a_machine_without_sudo_says_so(machine: PrivateMachine) -> None:
    machine.as_root("mount", "--bind", "/dev/null", "/usr/bin/sudo")
    try:
        obstacle = Sudo(machine).obstacle([echo("a")], "restart")
    finally:
        machine.as_root("umount", "/usr/bin/sudo")
    assert obstacle.act == "restart"
