"""Kafka Connect's own contract: REST API, config topic, worker group, modes of exactly-once source support."""
