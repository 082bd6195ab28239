"""The topics of interval runs: their records, their readers, and the check that a run has its original topics."""

from __future__ import annotations
