"""A Connect group of many members without their JVMs: real members of the broker's group, and REST answers for each.

Each member joins by JoinGroup and SyncGroup as a worker of protocol ``default`` does, with its address and config
offset, and is kept for half an hour without a heartbeat. One HTTP server on all of 127/8 stands for their REST APIs.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from airflow_eos_provider.connect.group import describe_group
from airflow_eos_provider.kafka.clients import assigned_consumer
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

#: ``group.max.session.timeout.ms`` of a broker; so long a member stays that sends no heartbeat, milliseconds.
SESSION_MS = 1_800_000

JOIN_SECONDS = 60.0

_JOIN_GROUP, _SYNC_GROUP = 11, 14


def _text(value: str | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()


def _bytes(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


class _Member:
    """One connection to the group's coordinator; requests by hand, for no client joins as a Connect worker."""

    def __init__(self, kafka: KafkaSettings, group_id: str, url: str) -> None:
        host, port = kafka.bootstrap_servers.split(":")
        self._connection = socket.create_connection((host, int(port)), timeout=JOIN_SECONDS)
        self._group_id = group_id
        self.url = url
        self._name = url.rpartition("/")[2].replace(":", "-")  # a static member joins in one request
        self.member_id = ""
        self.generation = -1
        self.leader = ""

    def close(self) -> None:
        self._connection.close()

    def ask_to_join(self, config_offset: int) -> None:
        metadata = struct.pack(">h", 0) + _text(self.url) + struct.pack(">q", config_offset)
        protocols = struct.pack(">i", 1) + _text("default") + _bytes(metadata)
        timeouts = struct.pack(">ii", SESSION_MS, 60_000)
        identity = _text(self.member_id) + _text(self._name) + _text("connect")
        self._send(_JOIN_GROUP, 5, _text(self._group_id) + timeouts + identity + protocols)

    def joined(self) -> list[str]:
        """The members' ids, which only the leader is given."""
        answer = self._answer()
        _, error, self.generation = answer.numbers(">ihi")
        if error:
            raise RuntimeError(f"{self.url} could not join: error {error}")
        answer.text()
        self.leader, self.member_id = answer.text(), answer.text()
        members = []
        for _ in range(answer.numbers(">i")[0]):
            members.append(answer.text())
            answer.text()
            answer.skip_bytes()
        return members

    def sync(self, assignments: dict[str, bytes]) -> None:
        pairs = b"".join(_text(member) + _bytes(assignment) for member, assignment in assignments.items())
        who = _text(self._group_id) + struct.pack(">i", self.generation) + _text(self.member_id) + _text(self._name)
        self._send(_SYNC_GROUP, 3, who + struct.pack(">i", len(assignments)) + pairs)

    def synced(self) -> None:
        _, error = self._answer().numbers(">ih")
        if error:
            raise RuntimeError(f"{self.url} was given no assignment: error {error}")

    def _send(self, kind: int, version: int, body: bytes) -> None:
        self._connection.sendall(_bytes(struct.pack(">hhi", kind, version, 0) + _text("simulated") + body))

    def _answer(self) -> _Answer:
        (length,) = struct.unpack(">i", self._receive(4))
        return _Answer(self._receive(length)[4:])

    def _receive(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            piece = self._connection.recv(count - len(got))
            if not piece:
                raise RuntimeError(f"The broker closed the connection of {self.url}.")
            got += piece
        return got


class _Answer:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def numbers(self, form: str) -> tuple[int, ...]:
        found = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return found

    def text(self) -> str:
        length = max(self.numbers(">h")[0], 0)
        self._at += length
        return self._data[self._at - length : self._at].decode()

    def skip_bytes(self) -> None:
        length = max(self.numbers(">i")[0], 0)
        self._at += length


@contextmanager
def simulated_group(
    kafka: KafkaSettings,
    group_id: str,
    count: int,
    connectors: int,
    topic: str,
) -> Iterator[list[str]]:
    """Members that stay while the ``with`` block runs."""
    with ExitStack() as stack:
        statuses: dict[str, Any] = {}
        server = _Server(("0.0.0.0", 0), _handler(statuses, topic))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        urls = [f"http://127.0.1.{number}:{server.server_address[1]}" for number in range(1, count + 1)]
        members = [_Member(kafka, group_id, url) for url in urls]
        for member in members:
            stack.callback(member.close)
        first, *others = members
        _wait_for_coordinator(kafka, group_id)
        first.ask_to_join(0)
        first.joined()
        for member in others:
            member.ask_to_join(0)
        _wait_for_members(kafka, group_id, count)
        first.ask_to_join(0)  # with it the broker has heard of all, and the group is complete
        ids = first.joined()
        for member in others:
            member.joined()
        assignments = _assignments(ids, first, connectors)
        worker_ids = {member.member_id: member.url.partition("//")[2] for member in members}
        statuses |= {f"c{n}": {"status": _status(f"c{n}", worker_ids[ids[n % len(ids)]])} for n in range(connectors)}
        for member in members:
            member.sync(assignments if member.member_id == member.leader else {})
        for member in members:
            member.synced()
        yield urls


def _wait_for_coordinator(kafka: KafkaSettings, group_id: str) -> None:
    """A cluster's first group makes the topic of groups, which takes a moment."""
    consumer = assigned_consumer(kafka, {"group_id": group_id}).client
    deadline = time.monotonic() + JOIN_SECONDS
    while True:
        try:
            consumer.committed([TopicPartition("any", 0)], timeout=JOIN_SECONDS)
            break
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_COORDINATOR or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    consumer.close()


def _wait_for_members(settings: KafkaSettings, group_id: str, count: int) -> None:
    deadline = time.monotonic() + JOIN_SECONDS
    while len(describe_group(settings, group_id).members) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"Not all {count} members joined within {JOIN_SECONDS:g} s.")
        time.sleep(0.2)


def _assignments(ids: list[str], leader: _Member, connectors: int) -> dict[str, bytes]:
    head = struct.pack(">hh", 0, 0) + _text(leader.member_id) + _text(leader.url) + struct.pack(">q", 0)
    given: dict[str, bytes] = {}
    for number, member in enumerate(ids):
        own = [f"c{n}" for n in range(connectors) if n % len(ids) == number]
        one = struct.pack(">iii", 2, -1, 0)  # two entries: the connector itself, and its task
        pairs = b"".join(_text(name) + one for name in own)
        given[member] = head + struct.pack(">i", len(own)) + pairs
    return given


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


def _status(name: str, worker_id: str) -> dict[str, Any]:
    where = {"state": "RUNNING", "worker_id": worker_id}
    return {
        "name": name,
        "connector": where,
        "type": "source",
        "tasks": [{"id": 0, **where}],
    }


def _handler(statuses: Mapping[str, Any], topic: str) -> type[BaseHTTPRequestHandler]:
    """:param statuses: by connector, once they are known."""
    answers: dict[str, Any] = {
        "/": {"version": "4.3.1", "commit": "c", "kafka_cluster_id": "k"},
        "/health": {"status": "healthy", "message": ""},
        "/connector-plugins": [],
    }
    bodies = {path: json.dumps(answer).encode() for path, answer in answers.items()}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path.endswith("/topics"):
                name = path.split("/")[2]
                body = json.dumps({name: {"topics": [topic]}}).encode()
            elif path == "/connectors":
                body = json.dumps(statuses).encode()
            else:
                body = bodies[path]
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Handler
