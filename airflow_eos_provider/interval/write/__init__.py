"""One slice becomes one transaction: records, digest, timings."""

from __future__ import annotations
