"""Who needs which ACLs for exactly-once source support: rules, checks, attempts, grants."""
