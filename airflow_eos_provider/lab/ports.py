"""Free ports of the loopback interface."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from random import SystemRandom

from airflow_eos_provider.errors import EosError

#: Where ports are looked for: below the range from which Linux takes the ports of outgoing connections.
_PORTS = range(20_000, 32_000)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody listens on now.

    All are bound at once, so that they differ; two labs that start together look in random places, so that they are
    unlikely to meet.

    :raises EosError: none are to be found.
    """
    candidates = SystemRandom().sample(_PORTS, k=200 + count)
    ports: list[int] = []
    with ExitStack() as held:
        for port in candidates:
            if len(ports) == count:
                break
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
    if len(ports) < count:
        raise EosError(f"Only {len(ports)} free ports were found between {_PORTS.start} and {_PORTS.stop - 1}.")
    return ports


def require_free(port: int, wanted_by: str) -> None:
    """Make sure that a server can listen on this port of the loopback interface now.

    :raises EosError: somebody else does.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java's servers do: TIME_WAIT is no obstacle
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise EosError(
                f"Port {port}, on which {wanted_by} listens, is taken by another process.",
                remedy="End that process, or give the lab up ('eos lab down') and start it anew on other ports.",
            ) from error
