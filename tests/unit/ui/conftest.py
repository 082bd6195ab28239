"""Gives Airflow a home of the tests' own before any test module imports it."""

from __future__ import annotations

import tests.page  # noqa: F401
