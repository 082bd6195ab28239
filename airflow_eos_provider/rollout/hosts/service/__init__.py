"""Who owns a worker's process: systemd, another supervisor, or nobody, where a start command starts it."""
