"""kafka-python drops what it reads together with the end of the connection.

A broker that refuses a login answers, and hangs up at once. Where both arrive before the client looks, it throws the
answer away and knows of a lost connection only: so it tries again until its time is over, and never says "password".
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kafka.net.transport import KafkaTCPTransport

from tests.upstream.shown import StartLab

ANSWER = b"the broker's refusal"


class Reader:
    """What a connection hands its bytes to."""

    _sensors = None

    transport: Any = None

    def __init__(self) -> None:
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.transport.pause_reading()

    def connection_lost(self, error: object) -> None: ...


class Net:
    """What a connection waits in: here all that it waits for is there."""

    async def wait_read(self, sock: socket.socket) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def show(start: StartLab) -> str:
    assert _received(hangs_up=False) == ANSWER, "what comes alone is read"
    received = _received(hangs_up=True)
    assert received == b"", received
    return f"{len(ANSWER)} bytes and the end arrived together; the reader got {len(received)}"


def _received(*, hangs_up: bool) -> bytes:
    broker, client = socket.socketpair()
    with broker, client:
        client.setblocking(False)
        broker.sendall(ANSWER)
        if hangs_up:
            broker.close()
        reader, transport = Reader(), KafkaTCPTransport(Net(), client)
        reader.transport = transport
        transport.set_protocol(reader)
        transport._read = True
        with suppress(StopIteration):
            transport._read_from_sock().send(None)
        return reader.received
