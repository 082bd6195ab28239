"""Tests that need a browser where there is none."""

from __future__ import annotations

import pytest

from tests.chromium import need_chromium


def test_a_test_without_its_browser_is_not_run_and_in_ci_has_failed() -> None:
    with pytest.raises(pytest.skip.Exception, match="not run: there is no Chromium"):
        need_chromium({"PATH": "/nowhere"})
    with pytest.raises(pytest.fail.Exception, match="not run: there is no Chromium"):
        need_chromium({"PATH": "/nowhere", "CI": "true"})
