"""The exactly-once protocol of interval runs: admission, coordinator, tasks. No Spark in it."""

from __future__ import annotations
