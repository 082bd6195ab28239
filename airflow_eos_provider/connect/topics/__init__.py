"""The internal topics of Kafka Connect: their formats, contents and settings."""
