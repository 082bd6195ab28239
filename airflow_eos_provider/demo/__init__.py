"""The main job on the lab, reported step by step: ``eos demo``."""

from __future__ import annotations
