"""What a roll is going to do: the plan under its hash, the edits, the order, the checks before it."""
