"""The topics of interval runs: what is in them, how they are read, and whether they are those of the run."""

from __future__ import annotations
