"""Variants: tests that prove once more, in another setting, what a test of each run proves.

Another version of Kafka Connect, another supervisor, one more moment of a kill. A run of all tests has a budget of
minutes, so it leaves them out; ``-m variant`` runs them alone, ``EOS_VARIANTS=1`` with the rest, and a file that is
named runs whole. The marker says which test stays: ``@pytest.mark.variant("the same by … in tests/…/test_….py")``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

#: Set, a run has the variants, too.
VARIABLE = "EOS_VARIANTS"

_FILE = re.compile(r"tests/[\w/]+\.py")


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the variants out of what is run, but for those of files that are named."""
    if os.environ.get(VARIABLE) or config.getoption("markexpr"):
        return
    named = {(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args}
    left = [item for item in items if item.get_closest_marker("variant") and item.path not in named]
    if left:
        config.hook.pytest_deselected(items=left)
        out = set(left)
        items[:] = [item for item in items if item not in out]


def require_reasons(root: Path, items: Iterable[pytest.Item]) -> None:
    """End the collection if a variant does not say of what it is one, or names a file that is not there.

    :param root: of the repository.
    :raises pytest.UsageError: names the variants.
    """
    wrong = [item.nodeid for item in items if not all(_is_reason(root, mark) for mark in item.iter_markers("variant"))]
    if wrong:
        raise pytest.UsageError(
            f"Variants without a reason, or with one that names a file that is not there: {', '.join(wrong)}. "
            'Say which test stays: @pytest.mark.variant("the same by … in tests/…/test_….py").'
        )


def _is_reason(root: Path, mark: pytest.Mark) -> bool:
    if len(mark.args) != 1 or not isinstance(mark.args[0], str) or not mark.args[0].strip():
        return False
    return all((root / name).is_file() for name in _FILE.findall(mark.args[0]))
