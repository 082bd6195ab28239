"""What a roll sees of a cluster: its workers, its group, its topics."""
