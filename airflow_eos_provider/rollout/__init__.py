"""The rolling upgrade of exactly-once source support as a pure state machine with thin edges (KIP-618)."""
