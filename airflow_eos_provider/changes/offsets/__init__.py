"""Source offsets: altered, reset, restored, migrated, pruned. ``offsets.verbs`` does the work."""
