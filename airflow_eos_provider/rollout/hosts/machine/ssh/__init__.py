"""A machine that is reached over SSH."""
