"""The executors of Spark: what a task runs there, which Python it needs, and what is found there."""

from __future__ import annotations
