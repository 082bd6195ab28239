"""Faults of others are still there. By name only, since nothing of ours breaks when one is fixed."""

from __future__ import annotations

import pytest

from tests.upstream.shown import names, show

pytestmark = pytest.mark.by_name


@pytest.mark.parametrize("name", names())
def test_the_fault_is_seen(name: str) -> None:
    assert show(name)
