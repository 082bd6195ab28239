"""The page's documents, one module per topic, each with its routes."""

from __future__ import annotations
