"""Benchmarks, each beside its peer in the same run: ``uv run python -m tests.benchmarks [NAME…]``."""
