"""Records written in transactions."""
