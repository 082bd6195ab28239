"""Clients of the Kafka broker: one settings mapping, topics read to their end, transactions, groups."""
