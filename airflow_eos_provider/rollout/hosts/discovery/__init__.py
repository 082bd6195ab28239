"""What is found out about workers that nobody has described."""
