"""The executors of Spark: the tasks, the Python that they need, and the checks of it."""

from __future__ import annotations
