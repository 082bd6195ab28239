"""The internal topics of a group: checked, created, fixed."""
