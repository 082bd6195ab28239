"""Topics read to their end."""
