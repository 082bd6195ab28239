"""The address of a worker's REST API: its port, its machine, and whether a process listens there."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

import psutil


def port_of(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def accepts_connections(url: str, *, seconds: float) -> bool:
    """Whether something accepts a TCP connection at a REST address within this time."""
    try:
        socket.create_connection((urlsplit(url).hostname or "", port_of(url)), timeout=seconds).close()
    except OSError:
        return False
    return True


def is_on_this_machine(url: str) -> bool:
    own = {address.address for interface in psutil.net_if_addrs().values() for address in interface}
    return any(address.is_loopback or str(address) in own for address in _addresses(urlsplit(url).hostname or ""))


def is_same_port(url: str, other: str) -> bool:
    """Whether two REST addresses are one: the same port, of hosts that resolve to an address in common."""
    ports = {port_of(url), port_of(other)}
    hosts = [urlsplit(url).hostname, urlsplit(other).hostname]
    if len(ports) != 1 or not all(hosts):
        return False
    ours, theirs = (_addresses(host or "") for host in hosts)
    return bool(ours & theirs)


def _addresses(host: str) -> set[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    try:
        return {_address(str(info[4][0])) for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return set()


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address; Java's two-family sockets show an IPv4 one as ``::ffff:127.0.0.1``."""
    address = ipaddress.ip_address(text.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address
