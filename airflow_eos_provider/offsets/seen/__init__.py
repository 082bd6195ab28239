"""The source offsets of a group as they are: listed, backed up, compared, and what deleted connectors have left."""
