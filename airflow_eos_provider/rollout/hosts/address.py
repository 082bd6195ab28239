"""The address of a worker's REST API: its port, and whether a process listens there."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit


def port_of(url: str) -> int:
    """The TCP port of a REST address."""
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def accepts_connections(url: str, *, seconds: float) -> bool:
    """Whether something accepts a TCP connection at a REST address within this time."""
    try:
        socket.create_connection((urlsplit(url).hostname or "", port_of(url)), timeout=seconds).close()
    except OSError:
        return False
    return True
