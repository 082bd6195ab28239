"""Changes of one connector's source offsets: asked for, decided, planned, carried out."""
