"""Fencing rounds: pending rounds, their plan and its execution."""
