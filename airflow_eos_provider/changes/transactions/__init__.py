"""The end of a hanging transaction."""
