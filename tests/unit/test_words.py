"""What users read is plain English: phrases that read as translated are rare."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PER_THOUSAND = 1.0

#: The plain words, and the phrases to replace by them. Rewrite the sentence, not the phrase: who does what?
RULES = {
    "continue, resume, retry": r"(?:go|goes|going|went) on(?! the\b)",
    "is reported, is shown": r"(?:is|are|was|were|be|been) (?:said|told)",
    "passes, is true, stays": r"(?:hold|holds|held)(?= any more|[.,:;)]|$)",
    "name the noun": r"whoever|what(?:ever| (?:is|are|was|were|has|had|came|stands|holds))|ones? (?:that|which|whose)",
    "is, appears": r"(?:stands?|stood)(?! (?:for|by|alone)\b)",
    "again, next to, while, otherwise": r"anew|beside|meanwhile|thereby|borne",
    "is unknown; eos cannot tell": r"(?:not|no longer) known",
    "an everyday verb": r"mend(?:s|ed|ing)?|lent|befalls?|for want of|by lot|at hand|under way|in sight|of the moment",
    "check, poll, snapshot": r"(?:a|an|one|each|every|first|next|last|second|another|two|own|newest) looks?",
    "back, downgrade": r"the way (?:back|out|there|up|down)",
    "only; none of the two": r"and (?:no others?|nothing else)|no more(?! than\b)|neither",
    "like": r"as (?:that|those) of",
    "about": r"some (?:two|three|five|ten|twenty|\d+)",
}
#: Texts that a rule finds and that are right as they stand, with the reason.
EXCEPTIONS = {
    "--beside": "the name of an option",
    "what was found": "the words of this package for the first part of an error",
    "What is approved is what is applied": "the promise of each DAG with an approval, in one form",
}


def _page(path: Path) -> Iterator[str]:
    """The lines of a document, without its blocks of code."""
    is_code = False
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield line


def _module(path: Path) -> Iterator[str]:
    """The module's docstring, and its texts of more than a word; other docstrings are for developers."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    yield ast.get_docstring(tree) or ""
    nodes = list(ast.walk(tree))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = (node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in docstrings)
    yield from (text for text in texts if isinstance(text, str) and " " in text)


def _texts() -> Iterator[tuple[str, str]]:
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    for path in [*pages, *(ROOT / "docs").rglob("*.md"), *(ROOT / "airflow_eos_provider").rglob("*.py")]:
        read = _module if path.suffix == ".py" else _page
        yield from ((path.relative_to(ROOT).as_posix(), text) for text in read(path))


def test_what_users_read_is_plain_english() -> None:
    rule = re.compile(rf"\b(?:{'|'.join(f'({phrase})' for phrase in RULES.values())})\b")
    plain, words = list(RULES), 0
    hits: dict[str, list[str]] = {}
    for place, text in _texts():
        words += len(text.split())
        for exception in EXCEPTIONS:
            text = text.replace(exception, "")
        for found in rule.finditer(text):
            assert found.lastindex is not None
            hits.setdefault(place, []).append(f"{found[0]!r} ({plain[found.lastindex - 1]})")
    count = sum(map(len, hits.values()))
    worst = sorted(hits.items(), key=lambda hit: -len(hit[1]))[:10]
    listed = "\n".join(f"{len(phrases):4} {place}: {'; '.join(phrases)}"[:300] for place, phrases in worst)
    assert 1000 * count <= PER_THOUSAND * words, f"{count} phrases in {words} words. The worst:\n{listed}"
