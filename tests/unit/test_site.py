"""The site's navigation is the index's own lists; what a built site must not be is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.site import navigation, problems


def test_the_lists_of_the_index_become_the_navigation() -> None:
    index = (
        "# Title\n\nSome [link](no-entry.md).\n\n**First**\n\n* [One](one.md): see [two](two.md).\n1. [Up](../UP.md)\n"
    )
    assert navigation(index) == (
        "\n```{toctree}\n:hidden:\n:caption: First\n\nOne <one>\nUp <../UP>\n```\n"
    )  # what an entry says further is no entry


def test_a_page_whose_links_lead_to_pages_and_anchors_has_no_problem(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<link href="s.css"><a href="b.html#here">b</a><a href="#own">o</a><p id="own"><a href="https://e.org/x">e</a>'
    )
    (tmp_path / "b.html").write_text('<h1 id="here">b</h1><img src="data:image/png;base64,AAAA">')
    (tmp_path / "s.css").write_text("body { background: url(data:image/svg+xml;x) } /* https://e.org */")
    assert list(problems(tmp_path)) == []


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ('<script src="https://cdn.e.org/x.js"></script>', "a.html loads https://cdn.e.org/x.js"),
        ('<link rel="stylesheet" href="//fonts.e.org/f">', "a.html loads //fonts.e.org/f"),
        ("<style>@import '//fonts.e.org/f';</style>", "a.html loads //fonts.e.org/f"),
        ('<p style="background: url(http://e.org/p.png)">', "a.html loads http://e.org/p.png"),
        ('<a href="b.html">b</a>', "a.html: b.html: no such file"),
        ('<a href="#there">there</a>', "a.html: #there: no such anchor"),
        ('<img src="p.svg">', "a.html: p.svg: no such file"),
    ],
)
def test_a_foreign_host_and_a_broken_link_are_problems(tmp_path: Path, page: str, problem: str) -> None:
    (tmp_path / "a.html").write_text(page)
    assert list(problems(tmp_path)) == [problem]


def test_a_style_sheet_that_loads_from_another_host_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "a.html").touch()
    (tmp_path / "s.css").write_text("@font-face { src: url('https://fonts.e.org/f.woff2') }")
    assert list(problems(tmp_path)) == ["s.css loads https://fonts.e.org/f.woff2"]


def test_a_folder_without_a_page_is_a_problem(tmp_path: Path) -> None:
    assert list(problems(tmp_path)) == [f"{tmp_path} has no page"]
