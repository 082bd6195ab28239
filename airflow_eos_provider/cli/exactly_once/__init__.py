"""Commands for what exactly-once keeps: source offsets, transactions, fencing and interval runs."""
