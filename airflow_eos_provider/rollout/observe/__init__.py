"""What a roll sees of a cluster: its workers, its group, its topics."""

from __future__ import annotations
