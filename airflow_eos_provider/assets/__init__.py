"""Assets of this provider."""
