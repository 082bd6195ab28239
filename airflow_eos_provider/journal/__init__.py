"""Lease, announcements and history of a Connect group, in a compacted topic."""

from __future__ import annotations
