"""Removes what this package has left of a group."""
