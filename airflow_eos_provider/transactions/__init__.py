"""Transactions of a Kafka cluster: listed, explained, found hanging, aborted (KIP-664)."""
