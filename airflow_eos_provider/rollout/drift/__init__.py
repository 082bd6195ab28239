"""What differs from the last roll, and the problems found in one observation."""
