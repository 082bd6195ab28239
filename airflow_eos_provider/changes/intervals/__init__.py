"""Abandons an interval run."""
