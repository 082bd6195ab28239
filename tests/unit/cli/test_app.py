"""``eos`` as a whole: what it imports, how it ends, what its helps say."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from airflow_eos_provider.cli import common
from airflow_eos_provider.cli.app import COMMANDS, app, load

#: What takes long to import, and the list of commands needs none of.
HEAVY = ("kafka", "confluent_kafka", "httpx", "yaml", "pyspark", "pyarrow", "airflow")

#: Runs ``eos`` and prints which of the modules it has imported; or sends it SIGINT when it begins to import one.
RUN = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Interrupt(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == interrupted_at:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts the tests in the background ignores it
interrupted_at, watched, sys.argv = {interrupted_at!r}, {watched!r}, ["eos", *{arguments!r}]
sys.meta_path.insert(0, Interrupt())
from airflow_eos_provider.cli import main
try:
    main()
finally:
    print("imported:", *(name for name in watched if name in sys.modules))
"""


def eos(*arguments: str, interrupted_at: str | None = None) -> subprocess.CompletedProcess[str]:
    code = RUN.format(interrupted_at=interrupted_at, watched=HEAVY, arguments=arguments)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_import_no_client(option: str) -> None:
    ended = eos(option)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1].strip() == "imported:"


@pytest.mark.parametrize("moment", ["typer", "kafka"])
def test_an_interrupt_while_it_starts_prints_no_traceback(moment: str) -> None:
    ended = eos("status", "--cluster", "/nothing", interrupted_at=moment)

    assert ended.returncode == 130
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_the_commands_own_help_says(name: str) -> None:
    sentence = load(name).help.replace("\n", " ").split(". ")[0].removesuffix(".")

    assert COMMANDS[name].summary.startswith(sentence)
    assert name in CliRunner().invoke(app, ["--help"]).output


def test_an_unknown_command_is_answered_with_a_similar_one() -> None:
    ended = CliRunner().invoke(app, ["statu"])

    assert ended.exit_code == 2
    assert "'status'" in ended.output


def named(command: list[str]) -> Any:
    """The command of these words."""
    found = load(command[0]) if command else get_command(app)
    return found.commands[command[1]] if command[1:] else found


def leaves() -> Iterator[list[str]]:
    for name in COMMANDS:
        command = load(name)
        yield from ([name, sub] for sub in command.commands) if hasattr(command, "commands") else [[name]]


@pytest.mark.parametrize("command", [[], *leaves()], ids=" ".join)
def test_every_help_ends_with_examples_that_can_be_typed(command: list[str]) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"]).output

    _, found, text = shown.partition("Examples:")
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("eos ")]
    assert found
    assert lines
    assert all(line.startswith(" ".join(["eos", *command])) for line in lines), lines


def test_quiet_leaves_out_progress_and_keeps_warnings_and_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(common.progress_console, "quiet", False)

    assert CliRunner().invoke(app, ["--quiet", "lab", "--help"]).exit_code == 0
    common.progress_console.print("restarting w1")
    common.warn("it holds secrets")

    assert capsys.readouterr().err == "warning: it holds secrets\n"


def test_verbose_shows_what_the_clients_log(tmp_path: Path) -> None:
    """Nobody listens at these ports, so the clients have something to say."""
    file = tmp_path / "eos.yaml"
    file.write_text("bootstrap_servers: 127.0.0.1:1\ngroup_id: none\nworkers: [{url: 'http://127.0.0.1:2'}]\n")
    command = [sys.executable, "-m", "airflow_eos_provider.cli", "-v", "status", "--cluster", str(file)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("kafka.net.connection:" in line for line in process.stderr)
        process.kill()


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("command", [[], *map(list, [[name] for name in COMMANDS]), *leaves()], ids=" ".join)
def test_a_help_fits_the_terminal_and_cuts_no_word(command: list[str], width: int) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": str(width)}).output.partition("Examples:")[0]

    assert [line for line in shown.splitlines() if len(line) > width] == []
    assert "<bool>" not in shown
    found = named(command)
    helps = [
        found.help,
        *(each.help for each in found.params),
        *(each.summary for each in COMMANDS.values() if not command),
    ]
    whole = "".join(shown.split())
    assert [text for text in helps if "".join((text or "").split()) not in whole] == []


@pytest.mark.parametrize(
    ("arguments", "stdout", "code", "words"),
    [
        (["--version"], "/dev/full", 1, "Standard output cannot be written"),
        (["--help"], os.devnull, 0, ""),
        (["status", "--cluster", "\udcff.yaml"], os.devnull, 2, r"\udcff.yaml"),
    ],
)
def test_odd_arguments_and_streams_end_in_a_message(arguments: list[str], stdout: str, code: int, words: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    with Path(stdout).open("w") as file:
        command = [sys.executable, "-m", "airflow_eos_provider.cli", *arguments]
        ended = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, env=environment, timeout=60)
    told = ended.stderr.decode("latin-1")
    assert (ended.returncode, words in told, "Traceback" in told) == (code, True, False), told
