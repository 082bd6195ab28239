"""Airflow triggers: they only read."""

from __future__ import annotations
