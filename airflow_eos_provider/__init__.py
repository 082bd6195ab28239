"""Exactly-once source support for Kafka Connect, operated from Apache Airflow."""

__version__ = "0.1.0"
