"""One mapping of client properties, for librdkafka and for kafka-python: logins, TLS, tokens, key stores."""
