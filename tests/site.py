"""What the built site must be: ``python -m tests.site FOLDER`` says what is wrong with it, and ends with 1.

``docs/build`` asks this of what Sphinx has built. A page loads nothing from another host (styles, fonts, scripts,
pictures), so it can be read anywhere and tells nobody that it was read; and every link inside the site leads to a page
and an anchor that are there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_CAPTION = re.compile(r"^\*\*(.+)\*\*$")
_ENTRY = re.compile(r"^(?:\d+\.|\*) \[([^\]]+)\]\(([^)\s]+\.md)\)")
_STYLE_URL = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^)"'\s]+)""")

#: Attributes by which an element makes a browser load something; ``a`` and ``link rel=canonical`` do not.
_LOADS = {
    "img": "src",
    "script": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "embed": "src",
    "link": "href",
}


def navigation(index: str) -> str:
    """The toctrees of the index page: its bold lines are captions, the first link of each item below is an entry."""
    blocks: list[str] = []
    for line in index.splitlines():
        if caption := _CAPTION.match(line):
            blocks.append(f"\n:hidden:\n:caption: {caption[1]}\n\n")
        elif (entry := _ENTRY.match(line)) and blocks:
            blocks[-1] += f"{entry[1]} <{entry[2].removesuffix('.md')}>\n"
    return "".join(f"\n```{{toctree}}{block}```\n" for block in blocks)


class _Page(HTMLParser):
    """What a page loads, where it links to, and which anchors it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in _LOADS and given.get(_LOADS[tag]):
            self.loads.append(given[_LOADS[tag]])
        self.loads += _STYLE_URL.findall(given.get("style", ""))

    def handle_data(self, data: str) -> None:
        if self.lasttag == "style":
            self.loads += _STYLE_URL.findall(data)


def problems(site: Path) -> Iterator[str]:
    """What is wrong with a built site, one sentence each."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    if not pages:
        yield f"{site} has no page"
    for path, page in sorted(pages.items()):
        name = path.relative_to(site)
        yield from (f"{name} loads {url}" for url in page.loads if _is_foreign(url))
        for link in [*page.links, *page.loads]:
            if problem := _leads_nowhere(path, link, pages):
                yield f"{name}: {link}: {problem}"
    for style in sorted(site.rglob("*.css")):
        text = style.read_text(encoding="utf-8")
        yield from (f"{style.relative_to(site)} loads {url}" for url in _STYLE_URL.findall(text))


def _is_foreign(url: str) -> bool:
    return bool(urlsplit(url).netloc)


def _leads_nowhere(page: Path, link: str, pages: dict[Path, _Page]) -> str | None:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.exists():
        return "no such file"
    if target in pages and unquote(parts.fragment) not in pages[target].anchors:
        return "no such anchor"
    return None


if __name__ == "__main__":
    found = list(problems(Path(sys.argv[1]).resolve()))
    print(*found or ["Every link leads somewhere; nothing is loaded from another host."], sep="\n")  # noqa: T201
    sys.exit(bool(found))
