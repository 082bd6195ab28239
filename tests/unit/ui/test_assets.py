"""What a browser gets: libraries as they were published, and files of our own that keep the content security policy."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STATIC = ROOT / "airflow_eos_provider" / "ui" / "static"
VENDOR = STATIC / "vendor"
#: Files of others, each folder with its checksums.
FOREIGN = (VENDOR, ROOT / "tests" / "browser" / "vendor")


def own_files() -> list[Path]:
    found = [path for path in STATIC.rglob("*") if path.is_file() and VENDOR not in path.parents]
    assert {".css", ".html", ".js", ".svg"} <= {path.suffix for path in found}, "there is nothing to look at"
    return found


def texts(suffix: str) -> Iterator[tuple[Path, str]]:
    for path in own_files():
        if path.suffix == suffix:
            yield path, path.read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", FOREIGN, ids=lambda folder: folder.parent.name)
def test_files_of_others_are_unchanged(folder: Path) -> None:
    lines = (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    wanted = {name: checksum for checksum, name in (line.split("  ") for line in lines)}
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name != "SHA256SUMS"
    }
    assert found == wanted


def test_the_library_names_its_versions_and_has_its_licences() -> None:
    assert [path.name for path in VENDOR.glob("*.js")] == ["preact.js"]
    first = (VENDOR / "preact.js").read_text(encoding="utf-8").splitlines()[0]
    assert re.match(r"// Preact [\d.]+ with its hooks, and HTM [\d.]+: ", first)
    assert {path.name for path in VENDOR.glob("*-LICENSE*")} == {"htm-LICENSE.txt", "preact-LICENSE.txt"}


def test_no_file_of_ours_names_another_host() -> None:
    for path in own_files():
        hosts = re.findall(r"(?:https?:)?//[\w.-]+\.\w+", path.read_text(encoding="utf-8"))
        assert set(hosts) <= {"http://www.w3.org"}, path  # the name of SVG, which nobody fetches


def test_the_page_has_neither_scripts_nor_styles_in_its_markup() -> None:
    for path, text in texts(".html"):
        assert not re.findall(r"<script(?![^>]*\ssrc=)[^>]*>|<style|\sstyle=|\son\w+=", text), path


@pytest.mark.parametrize(
    "forbidden",
    ["innerHTML", "outerHTML", "insertAdjacentHTML", "dangerouslySetInnerHTML", "document.write", "eval(", "Function("],
)
def test_no_module_of_ours_makes_markup_or_code_of_text(forbidden: str) -> None:
    assert not [path for path, text in texts(".js") if forbidden in text]


def test_templates_set_styles_as_objects_for_text_is_forbidden_by_the_policy() -> None:
    for path, text in texts(".js"):
        assert not re.findall(r"""style=["']|setAttribute\(["']style""", text), path


def test_each_module_imports_what_is_there() -> None:
    for path, text in texts(".js"):
        for target in re.findall(r"""(?:from|import\()\s*["']([^"']+)["']""", text):
            file = (path.parent / target).resolve()
            assert file.is_file(), f"{path} imports {target}"
            exported = file.read_text(encoding="utf-8")
            for names in re.findall(rf"""import \{{([^}}]*)\}} from ["']{re.escape(target)}["']""", text):
                for name in filter(None, (each.strip() for each in names.split(","))):
                    assert re.search(rf"export (?:async )?(?:function|const) {name}\b|\b{name}\b\s*[,}}]", exported), (
                        f"{path}: {target} has no {name}"
                    )


def test_the_page_asks_for_all_modules_at_once_and_not_one_after_another() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    named = set(re.findall(r'(?:href|src)="static/([^"]+\.js)"', page))
    assert named == {str(path.relative_to(STATIC)) for path, _ in texts(".js")} | {"vendor/preact.js"}


def test_each_module_says_first_what_it_does() -> None:
    for path, text in texts(".js"):
        assert text.startswith("// "), path
