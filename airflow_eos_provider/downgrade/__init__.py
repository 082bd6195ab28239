"""Downgrade to a Kafka Connect from before exactly-once source support: its effects and its leftovers."""
