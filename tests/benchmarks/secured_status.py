"""``eos status`` on a large cluster with TLS, logins and ACLs, beside the same cluster without them.

A group of three members with a hundred connectors of ten tasks each, simulated; a real broker with 50,000 transactional
ids, which look like the group's, and, where it is secured, 20,000 ACLs. A command is a process of its own, its start
included.
"""

from __future__ import annotations

import json
import os
import ssl
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from airflow_eos_provider.acls.tool_rules import READING, ToolFacts, tool_rules
from airflow_eos_provider.kafka.acl_values import Acl, Operation, Resource
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.lab.servers.part import write_properties
from tests.benchmarks.eos_command import run_eos
from tests.benchmarks.fill import fill
from tests.benchmarks.result import Result
from tests.benchmarks.simulated_group import simulated_group
from tests.lab.certificates import Authority
from tests.lab.lab import TestLab, TestLabOptions
from tests.lab.security import Principal

GROUP, CONFIGS, OFFSETS = "simulated", "simulated-configs", "simulated-offsets"
_OTHER_TOPICS = {"offset.storage.topic": OFFSETS, "status.storage.topic": "simulated-status"}
MEMBERS, CONNECTORS, TASKS = 3, 100, 10
IDS = int(os.environ.get("EOS_SECURED_STATUS_IDS", "50000"))
ACLS = int(os.environ.get("EOS_SECURED_STATUS_ACLS", "20000"))
TRIALS = 5

#: So many at once: a broker creates ACLs of one request in one batch of its metadata log, which is bounded.
_AT_ONCE = 2_000

#: A login of the simulated REST API, which takes any.
_REST_LOGIN = {"username": "eos", "password": "benchmark"}


def run(console: Console) -> list[Result]:
    secured, plain = (_seconds(console, secure=secure) for secure in (True, False))
    what = f"eos status: {CONNECTORS} connectors, {CONNECTORS * TASKS:,} tasks, {IDS:,} ids; {ACLS:,} ACLs and TLS"
    return [Result("status_secured_vs_plain", secured, plain, "lower", "s", what)]


def _seconds(console: Console, *, secure: bool) -> float:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lab = TestLab.up(TestLabOptions(name="status", workers=0, secure=secure, root=folder / "lab"))
        try:
            _fill(lab)
            tls, rest = _rest_tls(folder) if secure else (None, {})
            members = simulated_group(lab.kafka, GROUP, MEMBERS, CONNECTORS, OFFSETS, tasks=TASKS, tls=tls)
            with members as urls:
                client = lab.security.client(Principal.READER) if lab.security else {}
                file = folder / "worker.properties"  # says which topics the group has
                write_properties(file, {"group.id": GROUP, "config.storage.topic": CONFIGS, **_OTHER_TOPICS})
                workers = [{"url": url, "config": str(file)} for url in urls]
                described = {"client": client, "rest": rest, "workers": workers}
                lab.cluster_file.touch(mode=0o600)
                lab.cluster_file.write_text(
                    json.dumps({"bootstrap_servers": lab.bootstrap_servers, "group_id": GROUP, **described})
                )
                ran = [run_eos(lab, "status", output=folder / "status.txt") for _ in range(TRIALS)]
                run_eos(lab, "status", "--json", output=folder / "status.json")
                seen = json.loads((folder / "status.json").read_text())
                assert len(seen["connectors"]) == CONNECTORS
        finally:
            lab.down()
    seconds = statistics.median(one.seconds for one in ran)
    console.print(f"{'secured' if secure else 'plain'}: {seconds:.2f} s, {max(one.mebibytes for one in ran):.0f} MiB")
    return seconds


def _rest_tls(folder: Path) -> tuple[ssl.SSLContext, dict[str, str]]:
    """TLS of the simulated REST APIs, and how they are called."""
    authority = Authority(folder / "rest", "benchmark")
    server = authority.issue("connect", [f"127.0.1.{number}" for number in range(1, MEMBERS + 1)])
    client = authority.issue("eos")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate))
    context.load_cert_chain(server.certificate, server.key)
    context.verify_mode = ssl.CERT_REQUIRED
    files = {"client_certificate": client.certificate, "client_key": client.key, "ca": authority.certificate}
    return context, {**_REST_LOGIN, **{name: str(path) for name, path in files.items()}}


def _fill(lab: TestLab) -> None:
    lab.create_topic(CONFIGS, 1, {"cleanup.policy": "compact"})
    lab.create_topic(OFFSETS, 5, {"cleanup.policy": "compact"})
    fill(lab, CONFIGS, _configs())
    ours = [f"{GROUP}-c{connector}-{task}" for connector in range(CONNECTORS) for task in range(TASKS)]
    ids = [*ours, *(f"{GROUP}-gone-{number}" for number in range(IDS - len(ours)))]
    with TransactionsClient(lab.kafka, timeout_seconds=600) as client:
        for first in range(0, len(ids), _AT_ONCE):
            client.fence(ids[first : first + _AT_ONCE])
    if lab.security:
        facts = ToolFacts(GROUP, Principal.READER.acl_name, CONFIGS, [CONFIGS, OFFSETS], [OFFSETS], [f"{GROUP}-"])
        lab.allow(rule.acl for rule in tool_rules(facts, READING))
        for first in range(0, ACLS, _AT_ONCE):
            lab.allow(
                Acl(f"User:team-{number % 500}", Operation.WRITE, Resource.TOPIC, f"topic-{number}")
                for number in range(first, min(first + _AT_ONCE, ACLS))
            )


def _configs() -> Iterator[tuple[bytes, bytes, int]]:
    for number in range(CONNECTORS):
        name = b"c%d" % number
        config = b'{"properties":{"name":"%s","connector.class":"x","tasks.max":"%d"}}' % (name, TASKS)
        yield b"connector-" + name, config, 0
        for task in range(TASKS):
            yield b"task-%s-%d" % (name, task), b'{"properties":{"task.class":"x"}}', 0
        yield b"commit-" + name, b'{"tasks":%d}' % TASKS, 0
        yield b"tasks-fencing-" + name, b'{"task-count":%d}' % TASKS, 0
