"""The site of the documents, as Sphinx builds it: see ``docs/build``.

Its source is the repository's root, so that the README and the pages of ``docs/`` link to each other in the same way on
the site and where the files are read as they are. The navigation is written once, as the lists of ``docs/index.md``:
each bold line there is a caption, each link of its list an entry.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mermaidx
from docutils import nodes
from docutils.parsers.rst import Directive

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from airflow_eos_provider import __version__  # noqa: E402
from tests.site import navigation  # noqa: E402

project = "airflow-eos-provider"
version = release = __version__
html_title = f"airflow-eos-provider {__version__}"

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "docs/*/*.md", "tests/**/README.md"]
exclude_patterns = [".*", "airflow_eos_provider", "tests/**/node_modules"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 4  # as deep as links go; the anchors are the ones that GitHub makes
# Written pages go from their title to what a module or a command holds; an example need not be all of a language.
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
nitpicky = True
smartquotes_action = "qe"  # not dashes: the prose names options such as --ssh

html_theme = "furo"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_theme_options: dict[str, Any] = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "monokai"


def _complete(app: Any, docname: str, source: list[str]) -> None:
    """Add the navigation to the index."""
    if docname == root_doc:
        source[0] += navigation(source[0])


class _Picture(Directive):
    """A fenced Mermaid block as an SVG in the page, as forges draw it: the reader's browser loads and runs nothing."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        drawn = mermaidx.render("\n".join(self.content)).svg()
        return [nodes.raw("", f'<div style="background: white; overflow-x: auto">{drawn}</div>', format="html")]


def _front_page(app: Any) -> list[tuple[str, dict[str, str], str]]:
    """The folder's own ``index.html`` leads to the first page."""
    return [("index", {"target": f"{root_doc}.html"}, "forward.html")]


templates_path = ["templates"]


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("mermaid", _Picture)
    app.connect("source-read", _complete)
    app.connect("html-collect-pages", _front_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
