"""The description of a Connect cluster: its file, its workers, how each is reached."""
