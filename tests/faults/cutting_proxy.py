"""A proxy (HTTP CONNECT) that ends a client's connection at a request of a kind, or when that request is answered."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter
from enum import Enum

_CONNECT_SECONDS = 30


class Api(Enum):
    """Requests of the Kafka protocol by their keys."""

    PRODUCE = 0
    METADATA = 3
    FIND_COORDINATOR = 10
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS = 24
    END_TXN = 26


class CuttingProxy:
    """Passes on what it is given, until it is told to cut.

    :ivar cuts: connections that were cut.
    :ivar requests: by API key, those that were seen.
    """

    def __init__(self) -> None:
        self.cuts = 0
        self.requests: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._plan: tuple[Api, bool] | None = None
        self._left = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, api: Api, *, answered: bool, times: int = 1) -> None:
        """Cut at the next requests of a kind.

        :param answered: pass the request on, and cut in the place of its answer.
        """
        with self._lock:
            self._plan, self._left, self.cuts = (api, answered), times, 0
            self.requests.clear()

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            if not (byte := client.recv(1)):  # it has hung up
                client.close()
                return
            head += byte
        host, _, port = head.split()[1].decode().rpartition(":")
        try:
            broker = socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS)
        except OSError:
            client.close()
            return
        broker.settimeout(None)
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        _Pair(self, client, broker).start()

    def takes(self, key: int) -> bool | None:
        """Whether the connection is to be cut with this request's answer, at once (False), or not (None)."""
        with self._lock:
            self.requests[key] += 1
            if self._plan is None or self._left == 0 or self._plan[0].value != key:
                return None
            self._left -= 1
            self.cuts += 1
            return self._plan[1]


class _Pair:
    """A client's connection and the broker's."""

    def __init__(self, proxy: CuttingProxy, client: socket.socket, broker: socket.socket) -> None:
        self._proxy, self._client, self._broker = proxy, client, broker
        self._answers: set[int] = set()

    def start(self) -> None:
        for pump in (self._to_broker, self._to_client):
            threading.Thread(target=self._until_closed, args=(pump,), daemon=True).start()

    def _until_closed(self, pump: object) -> None:
        with contextlib.suppress(OSError):
            pump()  # type: ignore[operator]
        for each in (self._client, self._broker):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _to_broker(self) -> None:
        while frame := _frame(self._client):
            key, _, correlation = struct.unpack_from(">hhi", frame, 4)
            when = self._proxy.takes(key)
            if when is False:
                return
            if when:
                self._answers.add(correlation)
            self._broker.sendall(frame)

    def _to_client(self) -> None:
        while frame := _frame(self._broker):
            if struct.unpack_from(">i", frame, 4)[0] in self._answers:
                return
            self._client.sendall(frame)


def _frame(source: socket.socket) -> bytes:
    head = _exactly(source, 4)
    return head and head + _exactly(source, struct.unpack(">i", head)[0])


def _exactly(source: socket.socket, count: int) -> bytes:
    parts, left = [], count
    while left:
        part = source.recv(min(left, 1 << 16))
        if not part:
            return b""
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
