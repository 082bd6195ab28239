"""What differs from the last roll, and the problems found in one observation."""

from __future__ import annotations
