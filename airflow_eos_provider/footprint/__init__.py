"""What this package leaves behind on a Kafka cluster and on machines, and how that is removed."""
