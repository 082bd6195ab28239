"""The exactly-once protocol of interval runs: coordinator, tasks, control topic, ledger. No Spark in it."""

from __future__ import annotations
