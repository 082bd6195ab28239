"""Whether each attempt puts the same rows into the same slices: the rules, and a reader for each kind of plan."""

from __future__ import annotations
