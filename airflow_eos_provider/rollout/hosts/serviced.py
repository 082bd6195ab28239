"""The host of a worker whose machine and service are two answers of their own."""

from __future__ import annotations
