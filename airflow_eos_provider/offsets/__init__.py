"""Changes of a Connect group's source offsets, and fencing rounds."""
