"""Tests in a browser: reported as not run where there is none, and never as passed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from tests.missing import not_run

#: Debian's names for it.
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def need_chromium(environment: Mapping[str, str] = os.environ) -> str:
    """The path of Chromium; without one the test is skipped, or failed if the run must be complete (``CI`` is set)."""
    for program in PROGRAMS:
        found = shutil.which(program, path=environment.get("PATH"))
        if found:
            return found
    not_run("there is no Chromium (Debian: apt-get install chromium).", environment)
