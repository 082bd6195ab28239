"""Finds workers that the cluster description does not have yet, and proposes their entries."""
