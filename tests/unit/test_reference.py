"""The reference pages say what the code says: every command, option, exit code and public name."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import airflow_eos_provider
from tests.reference import DOCS, MARK, PAGES, Docstring, commands, eos, public_names, written

PACKAGE = Path(airflow_eos_provider.__file__).parent


@pytest.mark.parametrize("page", PAGES)
def test_the_page_is_what_is_written_from_the_code(page: str) -> None:
    assert (DOCS / page).read_text(encoding="utf-8") == written(page), "run: uv run python -m tests.reference"


def test_every_command_and_option_is_on_the_page() -> None:
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    found = dict(commands(eos()))
    assert {"eos status", "eos rollout back", "eos intervals verify", "eos lab up", "eos demo"} <= set(found)
    for path, command in found.items():
        section = page.partition(f"\n## `{path}`\n")[2].partition("\n## ")[0]
        assert section, path
        options = [name for option in command.params if option.param_type_name == "option" for name in option.opts]
        assert [name for name in options if name not in section] == []
        assert [option.name for option in command.params if not option.help] == [], f"{path}: an option without help"


def test_every_public_name_and_parameter_is_on_the_page() -> None:
    page = (DOCS / "python-api.md").read_text(encoding="utf-8").partition(MARK)[2]
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
    listed = re.findall(r"^\| (\d+) \|", (DOCS / "cli.md").read_text(encoding="utf-8"), re.MULTILINE)
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
