"""The reference pages say what the code says: every command, option, exit code and public name."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import airflow_eos_provider
from airflow_eos_provider.errors import GateFailedError
from airflow_eos_provider.get_provider_info import get_provider_info
from airflow_eos_provider.journal.records import Lease
from tests.reference import DOCS, MARK, PAGES, commands, public_names, written
from tests.reference_errors import error_classes, messages
from tests.reference_reports import REPORTS, has_json, keys_of, lost
from tests.reference_text import Docstring

PACKAGE = Path(airflow_eos_provider.__file__).parent


@pytest.mark.parametrize("page", PAGES)
def test_the_page_is_what_is_written_from_the_code(page: str) -> None:
    assert (DOCS / page).read_text(encoding="utf-8") == written(page), "run: uv run python -m tests.reference"


def test_every_command_and_option_is_on_the_page() -> None:
    page = (DOCS / "reference/cli.md").read_text(encoding="utf-8")
    found = commands()
    assert {"eos status", "eos rollout undo", "eos intervals verify", "eos lab up", "eos demo"} <= set(found)
    for path, command in found.items():
        section = page.partition(f"\n## `{path}`\n")[2].partition("\n## ")[0]
        assert section, path
        options = [name for option in command.params if option.param_type_name == "option" for name in option.opts]
        assert [name for name in options if name not in section] == []
        assert [option.name for option in command.params if not option.help] == [], f"{path}: an option without help"


def test_every_public_name_and_parameter_is_on_the_page() -> None:
    page = (DOCS / "reference/python-api.md").read_text(encoding="utf-8").partition(MARK)[2]
    names = public_names()
    assert {"airflow_eos_provider.interval", "airflow_eos_provider.operators.interval_run"} <= set(names)
    for module, members in names.items():
        section = page.partition(f"\n## `{module}`\n")[2].partition("\n## ")[0]
        for name, value in members:
            entry = section.partition(f"\n### `{name}`\n")[2].partition("\n### ")[0]
            assert entry, f"{module}.{name}"
            assert [p for p in inspect.signature(value).parameters if f"{p}` |" not in entry] == []


def test_every_exit_code_is_on_the_page() -> None:
    """Those of the error tree, of ``typer.Exit`` and of Ctrl-C, as the code spells them."""
    spelled = re.compile(r"(?:exit_code = |typer\.Exit\(|EXIT_\w+ = |_INTERRUPTED = )(\d+)\b")
    rooms = [
        PACKAGE / "errors.py",
        *(path for room in ("cli", "lab", "demo") for path in (PACKAGE / room).rglob("*.py")),
    ]
    used = {int(code) for path in rooms for code in spelled.findall(path.read_text(encoding="utf-8"))} | {0}
    listed = re.findall(r"^\| (\d+) \|", (DOCS / "reference/cli.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert used == set(map(int, listed))


def test_a_docstring_comes_apart_into_its_fields() -> None:
    def example() -> None:
        """Do it, as :func:`~a.b.other` does.

        :param one: first,
            and its second line.
        :returns: ``1``.
        :raises ValueError: never.
        """

    assert Docstring.of(example) == Docstring(
        "Do it, as `other` does.", {"one": "first, and its second line."}, [("ValueError", "never.")], "`1`."
    )


def test_every_error_of_the_package_is_on_its_page() -> None:
    page = written("reference/errors.md")
    declared = [
        found
        for path in PACKAGE.rglob("*.py")
        for found in re.findall(r"^class (\w+)\((\w+)\):", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    names = {error.__name__ for error in error_classes()}
    assert {"GateFailedError", "MachineLostError", "IncompleteError"} <= names
    assert [name for name, base in declared if base in names and name not in names] == []
    for error in error_classes():
        section = page.partition(f"\n## `{error.__name__}`\n")[2].partition("\n## ")[0]
        assert f"Exit code {error.exit_code}. " in section, error
        assert error.__doc__, error


def test_every_exit_code_of_an_error_has_a_first_step() -> None:
    own = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    assert {error.exit_code for error in error_classes()} <= set(
        map(int, re.findall(r"^\| (\d+) \|", own, re.MULTILINE))
    )


def test_messages_are_read_with_what_to_do() -> None:
    found = messages()
    assert sum(map(len, found.values())) > 400
    (failed,) = found[GateFailedError.__name__]
    assert failed.remedy
    assert any(
        message.found == "Unknown key… … in …." and message.remedy == "Expected: keys among …"
        for message in found["ConfigurationError"]
    )


def test_commands_of_the_troubleshooting_page_exist() -> None:
    own = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    known = commands()
    named = [re.match(r"(eos[a-z -]*?)(?: -.*)?$", code) for code in re.findall(r"`(eos [^`]*)`", own)]
    assert len(named) > 10
    assert [command[1] for command in named if command and command[1] not in known] == []


def test_what_is_stored_and_set_is_on_its_page() -> None:
    records, settings = written("reference/formats.md"), written("reference/configuration.md")
    lease = records.partition("\n### `lease`\n")[2].partition("\n### ")[0]
    assert [f for f in Lease.__dataclass_fields__ if f != "appended_at_ms" and f"| `{f}` |" not in lease] == []
    assert '["orders",{"interval":"2026-01-01T00:00:00Z/2026-01-02T00:00:00Z"}]' in records
    options = [name for section in get_provider_info()["config"].values() for name in section["options"]]
    assert options
    assert [name for name in [*options, "other_kafka", "EOS_CLUSTER"] if f"| `{name}` |" not in settings] == []


def test_the_keys_of_reports_are_read_from_the_code() -> None:
    assert lost() == [], "moved: write where to into tests/reference_reports.py"
    assert keys_of("interval/messages.py:SliceResult")[:2] == ["number", "records"], "of a dataclass"
    known = commands()
    assert [path for path in REPORTS if not has_json(known[path])] == []
    page = written("reference/formats.md")
    section = page.partition("\n## `eos intervals verify --json`\n")[2].partition("\n## ")[0]
    assert "`expected.digest`" in section


def test_help_shows_a_value_in_capitals_or_as_choices() -> None:
    shown = {path: each.get_help(each.context_class(each, info_name=path)) for path, each in commands().items()}
    assert {path for path, text in shown.items() if re.search(r"(?m)^  \S.*?[\w-] <", text)} == set()
    assert "--connector TEXT" in shown["eos acl check"]
    assert "  CONNECTOR  " in shown["eos offsets list"]
