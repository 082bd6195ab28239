"""The jars of Kafka and Connect, and the Java that runs them."""
