"""The current source offsets of a group: lists, backups, differences, and leftovers of deleted connectors."""
