"""``eos rollout list``, ``show`` and ``wait``: for a narrow terminal, for a script, and until a rollout ends."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml
from typer.testing import CliRunner, Result

from airflow_eos_provider.cli.rollout import rollouts
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import UnreachableError
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.process_start import ProcessStart
from airflow_eos_provider.journal.records import (
    Lease,
    Owner,
    RolloutRecord,
    RolloutState,
)
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.terminal import DataConsole

ID = "20261121T233643-preparing-abc123"


class Journal:
    """Stands in for the journal's topic: what it says at one look after the other; the last one holds."""

    def __init__(self, record: RolloutRecord) -> None:
        self.record = record
        self.states: list[RolloutState] = [record.state]
        self.looks = 0
        self.owner = Owner.this_process()
        self.asked: list[object] = []
        self.unreachable_at: set[int] = set()

    def read(self, kafka: object, *_: object) -> JournalContent:
        self.asked.append(kafka)
        if len(self.asked) in self.unreachable_at:
            raise UnreachableError("No broker answers.")
        state = self.states[min(self.looks, len(self.states) - 1)]
        self.looks += 1
        lease = Lease(self.owner, ID, "x", "y", 1e12) if state is RolloutState.RUNNING else None
        return JournalContent(rollouts={ID: replace(self.record, state=state)}, lease=lease)


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Journal:
    from tests.unit.rollout.conftest import Cluster

    plan = Cluster(Mode.DISABLED).plan(Mode.PREPARING)
    record = RolloutRecord(ID, plan.to_dict(), {}, RolloutState.DONE, 0.0, "airflow", "exactly once, at last " * 5)
    made = Journal(record)
    described = SimpleNamespace(kafka=None, group_id="lab")
    monkeypatch.setattr(rollouts, "load_cluster", lambda _: described)
    monkeypatch.setattr(rollouts, "read_journal", made.read)
    monkeypatch.setattr(rollouts, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(rollouts, "_sleep", lambda _: None)
    return made


def call(*arguments: str) -> Result:
    return CliRunner().invoke(rollouts.rollouts_app, list(arguments))


def test_an_id_is_whole_at_80_columns(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollouts, "console", DataConsole(width=80))

    shown = call("list").output

    assert any(line.startswith(f"{ID}  done ") for line in shown.splitlines()), shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_wide_has_every_column_on_one_line(journal: Journal) -> None:
    (row,) = [line for line in call("list", "-o", "wide").output.splitlines() if line.startswith(ID)]

    assert "airflow" in row
    assert ("exactly once, at last " * 5).strip() in row


def test_a_script_gets_names_json_or_yaml(journal: Journal) -> None:
    assert call("list", "-o", "name").output == f"{ID}\n"
    as_json = json.loads(call("list", "--json").output)
    assert as_json["rollouts"][0]["rollout_id"] == ID
    assert json.loads(call("list", "-o", "json").output) == as_json
    assert yaml.safe_load(call("list", "-o", "yaml").output) == as_json


@pytest.mark.parametrize(
    ("states", "timeout", "code"),
    [
        ("done", "60", 0),
        ("running running done", "60", 0),
        ("running failed", "60", 4),
        ("running paused", "60", 5),
        ("running aborted", "60", 3),
        ("running", "0.01", 1),
    ],
)
def test_wait_ends_with_the_rollout_or_with_its_time(journal: Journal, states: str, timeout: str, code: int) -> None:
    journal.states = [RolloutState(state) for state in states.split()]

    ended = call("wait", ID[:8], "--timeout", timeout)

    assert ended.exit_code == code
    assert ended.output == f"Rollout {ID} is {journal.states[-1]}.\n"


@pytest.mark.parametrize("command", ["wait", "show --watch 1"])
def test_every_look_is_with_the_same_clients_which_are_closed_at_the_end(journal: Journal, command: str) -> None:
    journal.states = [RolloutState(state) for state in ("running", "running", "running", "done")]

    call(*command.split())

    assert len(journal.asked) == len(journal.states)
    (session,) = set(journal.asked)
    assert isinstance(session, Session)
    assert not session._finalizer.alive, "it was not closed"


@pytest.mark.parametrize(("unreachable_at", "survived"), [({2}, True), ({2, 4}, True), ({2, 3}, False), ({1}, False)])
def test_a_look_that_fails_with_kept_clients_is_taken_once_more_with_new_ones(
    journal: Journal, unreachable_at: set[int], survived: bool
) -> None:
    journal.states = [RolloutState(state) for state in ("running", "running", "running", "done")]
    journal.unreachable_at = unreachable_at

    ended = call("wait", "--timeout", "60")

    assert (ended.exit_code == 0) is survived
    assert isinstance(ended.exception, UnreachableError) is not survived


@pytest.mark.parametrize(("states", "code"), [("running done", 0), ("running running", 5)])
def test_a_controller_that_is_gone_may_have_written_the_end_after_it_was_read(
    journal: Journal, states: str, code: int
) -> None:
    start = ProcessStart.of_this_process()
    journal.owner = replace(journal.owner, start=str(replace(start, ticks=start.ticks + 1)))  # no such process
    journal.states = [RolloutState(state) for state in states.split()]

    assert call("wait", ID[:8], "--timeout", "60").exit_code == code


def test_show_watches_until_the_rollout_ends_and_prints_what_has_changed_only(journal: Journal) -> None:
    journal.states = [RolloutState.RUNNING, RolloutState.RUNNING, RolloutState.DONE]

    shown = call("show", "--watch", "1").output

    assert [line for line in shown.splitlines() if line.startswith("Rollout")] == [
        f"Rollout {ID} is running",
        f"Rollout {ID} is done",
    ]
