"""A worker's machine: this one, or one over SSH. Commands run there, and files are read and replaced."""
