"""Ends a hanging transaction."""
