"""The documents: every page is listed, every link leads somewhere, every example is one that works."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from tests.reference import commands
from tests.site import navigation

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(DOCS.rglob("*.md")),
    *sorted((ROOT / "tests").rglob("README.md")),
]

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^[ ]*```([\w{}]*)[^\n]*\n(.*?)^[ ]*```", re.MULTILINE | re.DOTALL)
_IN_FILE = re.compile(r"`([\w/]+\.py)` \| `([\w.]+)` \|")
_CODE_PATH = re.compile(r"`((?:tests|dags|[a-z_]+)/[\w/.]*)`")


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _blocks(language: str) -> list[tuple[str, str]]:
    """The page's name and the text of each block of code in this language; indented blocks lose their indent."""
    found = []
    for page in PAGES:
        for marked, text in _FENCE.findall(page.read_text(encoding="utf-8")):
            if marked == language:
                lines = text.splitlines()
                indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
                found.append((_name(page), "\n".join(line[indent:] for line in lines)))
    assert found, f"no page has a block in {language!r}"
    return found


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    links = [link for link in _LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    missing = [link for link in links if not (page.parent / link.partition("#")[0]).exists()]
    assert not missing


def _anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub and the site make them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_anchor_is_there(page: Path) -> None:
    missing = []
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if "://" in link or not anchor or target.suffix != ".md":
            continue
        missing += [link] if anchor not in _anchors(target) else []
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_row_of_a_table_has_the_cells_of_its_head(page: Path) -> None:
    """A vertical bar ends a cell, in code as well, unless it is escaped."""
    tables = re.findall(r"(?:^\|.*\n)+", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    counts = [[len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()] for table in tables]
    assert [table for table, cells in zip(tables, counts, strict=True) if len(set(cells)) > 1] == []


def test_the_index_lists_every_page() -> None:
    """As the first link of an item below a bold line, which makes it an entry of the site's navigation."""
    listed = set(re.findall(r"<(.+)>", navigation((DOCS / "index.md").read_text(encoding="utf-8"))))
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")}
    assert pages - {"index"} <= listed


def _terms() -> list[list[str]]:
    """The glossary's rows: word, meaning, source; not those of the words with two meanings."""
    definitions = (
        (DOCS / "contributing" / "glossary.md").read_text(encoding="utf-8").partition("## Words with two meanings")[0]
    )
    rows = [line.strip("| ").split(" | ") for line in definitions.splitlines() if line.startswith("| ")]
    return [row for row in rows if row[0] != "word"]


def test_the_glossary_defines_each_word_once_and_in_two_sentences_at_most() -> None:
    terms = _terms()
    long = [row[0] for row in terms if len(re.findall(r"[.?!](?: [A-Z*]|$)", row[1])) > 2]
    assert not long
    by_room: dict[str, int] = {}
    for row in terms:
        by_room[row[0]] = by_room.get(row[0], 0) + 1
    # Words that two rooms define are the ones that "Words with two meanings" lists.
    assert {word for word, times in by_room.items() if times > 1} <= {"generation", "plan"}


def test_what_the_glossary_names_in_the_code_is_there() -> None:
    named = [path for row in _terms() for path in _CODE_PATH.findall(row[-1])]
    assert len(named) > 20
    missing = [path for path in named if not (ROOT / path).exists() and not (_package() / path).exists()]
    assert not missing


def _package() -> Path:
    return ROOT / "airflow_eos_provider"


def test_functions_that_the_documents_name_with_their_file_are_there() -> None:
    named = [found for page in PAGES for found in _IN_FILE.findall(page.read_text(encoding="utf-8"))]
    assert len(named) > 10
    assert [f"{path}: {name}" for path, name in named if name not in _functions(_package() / path)] == []


def _functions(file: Path) -> set[str]:
    """Functions and classes of a module, methods as ``Class.method``."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
            inner = node.body if isinstance(node, ast.ClassDef) else []
            found |= {f"{node.name}.{method.name}" for method in inner if isinstance(method, ast.FunctionDef)}
    return found


@pytest.mark.parametrize(("page", "text"), _blocks("python"))
def test_python_examples_compile_and_import_what_is_there(page: str, text: str) -> None:
    for node in ast.walk(ast.parse(text, filename=page)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("airflow_eos_provider"):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                assert getattr(module, alias.name), f"{node.module} has no {alias.name}"


def _command_lines() -> list[tuple[str, str]]:
    lines = []
    for page, text in _blocks(""):
        for line in text.splitlines():
            found = re.match(r"(?:\$ )?(?:uv run )?eos (?!ALL=)(.*?)(?:\s+#.*)?$", line.split("; ")[0].strip())
            if found:
                lines.append((page, found[1]))
    return lines


@pytest.mark.parametrize(("page", "line"), _command_lines())
def test_command_lines_name_commands_and_options_that_exist(page: str, line: str) -> None:
    words = line.split()
    known = commands()
    path = "eos"
    while words and f"{path} {words[0]}" in known:
        path += f" {words.pop(0)}"
    assert not hasattr(known[path], "commands"), f"{page}: no command 'eos {line}'"
    options = {name for parameter in known[path].params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert {word.partition("=")[0] for word in words if word.startswith("-")} <= options, f"{page}: eos {line}"


def test_the_sources_are_read_as_the_tests_read_them() -> None:
    jobs = (ROOT / "tests" / "integration" / "source_jobs.py").read_text(encoding="utf-8")
    blocks = (text for page, text in _blocks("python") if page.endswith("spark/sources.md") and "def " in text)
    shown = [re.sub(r"\A((import|from) .*\n)+\n+", "", text) for text in blocks]
    assert len(shown) == 5
    assert [text for text in shown if text not in jobs] == []
