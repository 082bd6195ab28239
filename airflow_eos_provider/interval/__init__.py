"""Interval runs: batches that reach Kafka exactly once, interval by interval. Neither Airflow nor Spark below here."""
