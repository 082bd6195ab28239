"""Fencing rounds: what is due, the plan, the round."""
