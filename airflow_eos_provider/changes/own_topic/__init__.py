"""Removes a connector's own offsets topic that an older Kafka Connect left behind."""
