"""Back to a Kafka Connect from before exactly-once source support: what it does not know, and what it leaves behind."""
