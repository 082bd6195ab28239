"""Closes a roll or a change that was left open."""
