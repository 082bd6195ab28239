"""``eos preflight`` prints what was found, worst first, and ends with the exit code of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from airflow_eos_provider.cli import common
from airflow_eos_provider.cli.app import app
from airflow_eos_provider.cli.rollout import preflight as module
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.preflight.group_facts import BrokerFacts, ConnectorFacts, Facts, WorkerAnswer, WorkerFiles
from airflow_eos_provider.terminal import DataConsole

KNOWN = frozenset({"exactly.once.support"})


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command on facts that are given: a real look needs workers, see the integration test."""

    def invoke(facts: Facts, *arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(module, "load_cluster", lambda path: SimpleNamespace())
        monkeypatch.setattr(module, "look", lambda session, mode, scope, progress: facts)
        monkeypatch.setattr(module, "ConnectSession", Session)
        narrow = DataConsole(width=80)
        for place in (module, common):
            monkeypatch.setattr(place, "console", narrow)
        done = CliRunner().invoke(app, ["preflight", *arguments])
        return done.exit_code, done.stdout

    return invoke


class Session:
    """A session that is never asked anything."""

    def __init__(self, cluster: object, *, answer_seconds: float) -> None:
        self.answer_seconds = answer_seconds

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""


def facts(limit: int | None = 900_000, **config: str) -> Facts:
    named = {"connector.class": "C", **{name.replace("_", "."): value for name, value in config.items()}}
    answers = (WorkerAnswer("w1:8083", {}, KNOWN),)
    connectors = (
        ConnectorFacts("orders", "source", named, 1, 1, answers, ("lines",)),
        ConnectorFacts("files", "sink", {}, 1, 1, answers),
    )
    return Facts("g", Mode.ENABLED, connectors, WorkerFiles({"w1:8083": {}}), BrokerFacts(limit))


def test_the_exit_code_is_the_answer(run: Any) -> None:
    assert run(facts())[0] == 0
    assert run(facts(producer_override_acks="1"))[0] == 1
    assert run(facts(limit=None))[0] == 5
    code, printed = run(facts(producer_override_acks="1"), "--accept", "orders/producer")
    assert (code, printed.splitlines()[-1]) == (
        0,
        "1 source connector in the mode enabled: 2 not known, 1 accepted. Nothing blocks.",
    )


def test_findings_come_by_connector_the_worst_first_and_sinks_are_named(run: Any) -> None:
    _, printed = run(facts(limit=80_000, producer_override_acks="1"))
    lines = printed.splitlines()
    assert lines[0] == "orders"
    assert [line.split()[0] for line in lines[1:-2] if line[2] != " "] == ["blocks", "warns", "not", "not"]
    assert lines[1].strip().startswith("blocks    producer: producer.override.acks=1")
    assert lines[-2] == "Out of scope, since they are sinks: files"
    assert lines[-1] == "1 source connector in the mode enabled: 1 blocks, 1 warns, 2 not known. Something blocks."


def test_names_are_those_of_connectors_about_which_something_blocks(run: Any) -> None:
    assert run(facts(producer_override_acks="1"), "-o", "name")[1] == "orders\n"
    assert run(facts(), "-o", "name")[1] == ""
    assert run(facts(producer_override_acks="1"), "-o", "name", "--accept", "orders/producer")[1] == ""


def test_wide_has_what_holds_too_each_on_one_line(run: Any) -> None:
    _, printed = run(facts(), "-o", "wide")
    (row,) = [line for line in printed.splitlines() if line.startswith("orders") and "many-tasks" in line]
    assert row.split()[1] == "pass"
