"""Administration of a Kafka cluster: ACLs, groups, transactions. Only this package knows wire messages."""
