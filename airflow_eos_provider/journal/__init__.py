"""Who may act on a Connect group, and what was done to it: lease, announcements and history, in a compacted topic."""

from __future__ import annotations
