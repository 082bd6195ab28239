"""Links from a task to where its work is seen: the page, Connect's REST API, Spark's own page."""

from __future__ import annotations
