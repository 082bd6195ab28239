"""What somebody gave is shown as data, by the rules of CommonMark and GFM, which Airflow's pages follow."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from airflow_eos_provider.data_text import code_span, one_line, visible

#: What Airflow's page knows (react-markdown with remark-gfm): CommonMark, tables and strikethrough; HTML is not even
#: drawn there, but it is switched on here, so that a test would see it.
MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])

HOSTILE = [
    "# plan is safe",
    "\n\n# plan is safe\n\nPlan hash: `0000`",
    "a\r\n## b",
    "`",
    "``",
    "` # `",
    "`a` [x](http://evil) ``b``",
    "```\nfence",
    "[Approve here](http://evil)",
    "![](http://evil/pixel.png)",
    "<img src=http://evil/pixel.png>",
    "<script>alert(1)</script>",
    "a | b | c",
    "a \\| b",
    "\\",
    "a\\`b",
    "http://evil.example",
    "**bold**",
    " leading and trailing ",
    "   ",
    "",
    "safe \u202etxet desrever",
    "zero\u200bwidth",
    "\x1b[2J\x1b[31mred",
    "\x9b31m",
    "line\u2028separator",
    "- item\n- item",
    "> quote",
    "&#35; &lt;b&gt;",
    "$x^2$ ~~no~~",
]


def kinds(tokens: list[Token]) -> list[str]:
    found = []
    for token in tokens:
        found.append(token.type)
        found += kinds(token.children or [])
    return found


@pytest.mark.parametrize("value", HOSTILE)
def test_in_markdown_a_value_is_one_code_span(value: str) -> None:
    tokens = MARKDOWN.parse(f"Reason: {code_span(value)} end")
    assert kinds(tokens) == ["paragraph_open", "inline", "text", "code_inline", "text", "paragraph_close"]
    (span,) = [token for token in tokens[1].children or [] if token.type == "code_inline"]
    assert span.content.strip() == (one_line(value).replace("|", "\\x7c").strip() or "(empty)")


@pytest.mark.parametrize("value", HOSTILE)
def test_in_a_table_it_stays_in_its_cell(value: str) -> None:
    tokens = MARKDOWN.parse(f"| a | b |\n|---|---|\n| {code_span(value)} | second |")
    assert kinds(tokens).count("code_inline") == 1
    assert kinds(tokens).count("td_open") == 2
    cells = [token for token in tokens if token.type == "inline"]
    assert cells[-1].content == "second"
    assert not {"link_open", "image", "html_inline", "html_block", "heading_open"} & set(kinds(tokens))


@pytest.mark.parametrize("value", HOSTILE)
def test_a_line_has_only_what_is_printed(value: str) -> None:
    assert one_line(value).isprintable()
    assert visible(value).isprintable()


def test_what_is_harmless_stays_as_it_is() -> None:
    for text in ("Grüße, 世界", "w1:8083", "a-b_c.d", "שלום"):
        assert visible(text) == text
        assert code_span(text) == f"`{text}`"


def test_codes_are_told_apart() -> None:
    assert visible("\n\t\x1b\u202e\U000e0001") == "\\n\\t\\x1b\\u202e\\U000e0001"
    assert visible("a\nb\x1b", keep="\n") == "a\nb\\x1b"


def test_a_long_value_is_cut_and_says_so() -> None:
    assert one_line("x" * 201) == "x" * 200 + "…"
    assert len(one_line("\u202e" * 200)) == 201
    assert one_line("x" * 200) == "x" * 200
