"""Which tests run: ``pytest`` the first tier, ``pytest --all`` every proof, a named file all of its tests.

The first tier has the tests that are not ``slow``, and those marked ``first``: each promise once on real parts.
Variants prove a promise again in another setting, such as an older Kafka Connect. They run with ``EOS_VARIANTS=1``,
with ``-m variant``, or by the name of their file. Their marker says which test stays:
``@pytest.mark.variant("the same by … in tests/…/test_….py")``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

#: If set, variants run, too.
VARIABLE = "EOS_VARIANTS"

_FILE = re.compile(r"tests/[\w/]+\.py")


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run every test that proves a promise, not the first tier only")


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what no option, marker expression or file name asks for."""
    if config.getoption("markexpr"):
        return
    named = {(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args}
    everything, variants = config.getoption("--all"), bool(os.environ.get(VARIABLE))
    left = [item for item in items if item.path not in named and not _runs(item, everything or variants, variants)]
    if left:
        config.hook.pytest_deselected(items=left)
        out = set(left)
        items[:] = [item for item in items if item not in out]


def _runs(item: pytest.Item, everything: bool, variants: bool) -> bool:
    if item.get_closest_marker("variant"):
        return variants
    return everything or not item.get_closest_marker("slow") or item.get_closest_marker("first") is not None


def require_reasons(root: Path, items: Iterable[pytest.Item]) -> None:
    """End the collection if a variant does not say which test stays, or names a file that does not exist.

    :param root: of the repository.
    :raises pytest.UsageError: names the variants.
    """
    wrong = [item.nodeid for item in items if not all(_is_reason(root, mark) for mark in item.iter_markers("variant"))]
    if wrong:
        raise pytest.UsageError(
            f"Variants without a reason, or with one that names a missing file: {', '.join(wrong)}. "
            'Say which test stays: @pytest.mark.variant("the same by … in tests/…/test_….py").'
        )


def _is_reason(root: Path, mark: pytest.Mark) -> bool:
    if len(mark.args) != 1 or not isinstance(mark.args[0], str) or not mark.args[0].strip():
        return False
    return all((root / name).is_file() for name in _FILE.findall(mark.args[0]))
