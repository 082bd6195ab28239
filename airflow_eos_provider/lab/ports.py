"""Free ports of the loopback interface."""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack
from random import SystemRandom

import psutil

from airflow_eos_provider.errors import EosError

#: Where ports are looked for: below the range from which Linux takes the ports of outgoing connections.
_PORTS = "20000-31999"

#: Look there instead: only a range of its own keeps the port of a lab's stopped worker from other labs.
PORTS_VARIABLE = "EOS_LAB_PORTS"

#: Ports that this process has given away: their owners may not listen just now.
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that no process listens on now.

    All are bound at once, so that they differ; two labs that start together look in random places, so that they are
    unlikely to meet. None is given away twice by one process.
    """
    between = os.environ.get(PORTS_VARIABLE, _PORTS)
    first, last = map(int, between.split("-"))
    unused = [port for port in range(first, last + 1) if port not in _given]
    candidates = SystemRandom().sample(unused, k=min(200 + count, len(unused)))
    ports: list[int] = []
    with ExitStack() as held:
        for port in candidates:
            if len(ports) == count:
                break
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                probe.bind(("", port))  # nor on another loopback address: a lab's machines have some
            except OSError:
                continue
            ports.append(port)
    if len(ports) < count:
        raise EosError(f"Only {len(ports)} free ports were found in {between}.")
    _given.update(ports)
    return ports


def require_free(port: int, wanted_by: str, address: str = "127.0.0.1", seconds: float = 0.0) -> None:
    """Make sure that a server can listen on this port now.

    :param seconds: wait so long for a process that was just killed to release it.
    """
    deadline = time.monotonic() + seconds
    while (error := _refusal(port, address)) is not None:
        if time.monotonic() >= deadline:
            raise EosError(
                f"Port {port}, on which {wanted_by} listens, is taken by {_holder(port)}.",
                remedy="End that process, or take the lab down ('eos lab down') and start it again on other ports.",
            ) from error
        time.sleep(0.1)


def _refusal(port: int, address: str) -> OSError | None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java's servers do: TIME_WAIT is no obstacle
        try:
            probe.bind((address, port))
        except OSError as error:
            return error
    return None


def _holder(port: int) -> str:
    """In words, who has a port."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.Error:
        return "another process"
    found = {(each.pid, each.status) for each in connections if each.laddr and each.laddr.port == port}
    return (
        ", ".join(f"pid {pid or 'unknown'} ({status})" for pid, status in sorted(found, key=str)) or "another process"
    )
