"""``eos plan``, ``eos apply`` and ``eos rollout undo``: which plan they show, and when they apply it."""

from __future__ import annotations

import json
import shlex
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from airflow_eos_provider.cli import confirm
from airflow_eos_provider.cli.app import app
from airflow_eos_provider.cli.rollout import plan_apply, rollouts
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import EosError, PlanMovedError
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.records import RolloutRecord, RolloutState
from airflow_eos_provider.rollout.outcome import RolloutReport
from airflow_eos_provider.rollout.plan.roll_plan import Plan
from tests.unit.rollout.conftest import Cluster

ID = "20261121T233643-preparing-abc123"
DESCRIBED = SimpleNamespace(kafka=None, group_id="lab")


@pytest.mark.parametrize(
    ("cluster", "allow_downtime", "expected"),
    [
        (None, False, ["--plan", "3f1c09ab77d2"]),
        (Path("/etc/eos.yaml"), False, ["--plan", "3f1c09ab77d2", "--cluster", "/etc/eos.yaml"]),
        (
            Path("my clusters/$north.yaml"),
            True,
            ["--allow-downtime", "--plan", "3f1c09ab77d2", "--cluster", "my clusters/$north.yaml"],
        ),
    ],
)
def test_the_command_that_applies_a_plan_names_the_cluster_that_was_planned_for(
    cluster: Path | None, allow_downtime: bool, expected: list[str]
) -> None:
    made: Any = SimpleNamespace(short_hash="3f1c09ab77d2")
    command = plan_apply.apply_command(made, cluster, allow_downtime)
    assert shlex.split(command) == ["eos", "apply", *expected]


class Stage(AbstractContextManager["Stage"]):
    """Stands in for the controller of a group in disabled, and for its journal."""

    def __init__(self) -> None:
        self.up = Cluster(Mode.DISABLED).plan(Mode.PREPARING)
        self.plans = {Mode.PREPARING: self.up, Mode.DISABLED: Cluster(Mode.PREPARING).plan(Mode.DISABLED)}
        self.cluster = DESCRIBED
        self.observer = SimpleNamespace(session=SimpleNamespace(kafka=None))
        self.content = JournalContent()
        self.applied: list[tuple[Plan, bool]] = []

    def __exit__(self, *_: object) -> None: ...

    def plan(self, to: Mode | None) -> Plan:
        return self.plans[to or Mode.PREPARING]

    replan = plan

    def find_plan(self, plan_hash: str) -> Plan:
        for plan in self.plans.values():
            if plan.hash.startswith(plan_hash):
                return plan
        raise PlanMovedError(f"No plan {plan_hash}.")

    def apply(self, plan: Plan, *, take_over: bool, resume: bool) -> RolloutReport:
        self.applied.append((plan, resume))
        return RolloutReport.of_nothing(plan)

    def has_rollout(self, state: RolloutState) -> None:
        record = RolloutRecord(ID, self.up.to_dict(), {}, state, 0.0, "ada", "")
        self.content = replace(self.content, rollouts={ID: record})


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stage:
    stage = Stage()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan_apply, "Controller", lambda *_, **__: stage)
    monkeypatch.setattr(plan_apply, "_left_behind", lambda _: [])
    for module in (plan_apply, rollouts):
        monkeypatch.setattr(module, "load_cluster", lambda _: DESCRIBED)
        monkeypatch.setattr(module, "read_journal", lambda *_: stage.content)
    return stage


def run(*arguments: str, answer: str = "") -> Any:
    return CliRunner().invoke(app, list(arguments), input=answer)


def code(done: Any) -> int:
    return done.exception.exit_code if isinstance(done.exception, EosError) else int(done.exit_code)


def test_the_last_line_of_a_plan_is_the_command_that_applies_it(stage: Stage) -> None:
    shown = run("plan", "--allow-downtime").output.splitlines()
    assert shown[-1] == f"To apply this plan:  eos apply --allow-downtime --plan {stage.up.short_hash}"


@pytest.mark.parametrize("command", [["apply"], ["rollout", "undo"]], ids=" ".join)
def test_a_roll_needs_a_confirmation(stage: Stage, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if command[0] == "rollout":
        stage.has_rollout(RolloutState.DONE)
    made = stage.plans[Mode.DISABLED] if command[0] == "rollout" else stage.up

    refused = run(*command, "--cluster", "here.yaml")
    assert code(refused) == 3
    assert "Nothing changed. Pass --yes or --plan HASH." in str(refused.exception)
    assert f"Plan {made.short_hash}" in refused.stdout
    named = shlex.split(str(refused.exception).rpartition(":  ")[2])
    assert named[1 : 1 + len(command)] == command
    assert named[-4:] == ["--plan", made.short_hash, "--cluster", "here.yaml"]
    assert code(run(*command, "--plan", "0" * 12)) == 3
    assert code(run(*command, "--plan", "0" * 3)) == 2
    document = json.loads(run(*command, "--json").stdout)
    assert (document["plan"]["hash"], document["applied"], document["report"]) == (made.hash, False, None)
    assert stage.applied == []

    assert code(run(*named[1:])) == 0
    document = json.loads(run(*command, "--yes", "--json").stdout)
    assert (document["applied"], document["report"]) == (True, RolloutReport.of_nothing(made).to_dict())
    monkeypatch.setattr(confirm, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    assert code(run(*command, answer="n")) == 3
    asked = run(*command, "--json", answer="y")
    assert code(asked) == 0
    assert f"to {made.target}?" in asked.stderr
    assert f"Plan {made.short_hash}" in asked.stderr
    assert stage.applied == [(made, False)] * 3


def test_apply_rolls_to_the_mode_that_is_named(stage: Stage) -> None:
    assert code(run("apply", "--to", "disabled", "--yes")) == 0
    assert code(run("apply", "--to", "disabled", "--plan", stage.up.short_hash)) == 3
    assert stage.applied == [(stage.plans[Mode.DISABLED], False)]


@pytest.mark.parametrize(
    ("state", "options", "resumes"),
    [
        (RolloutState.FAILED, [], True),
        (RolloutState.RUNNING, ["--to", "preparing"], True),
        (RolloutState.PAUSED, ["--to", "disabled"], False),
        (RolloutState.ABORTED, [], False),
    ],
)
def test_apply_offers_the_plan_of_an_unfinished_rollout(
    stage: Stage, state: RolloutState, options: list[str], resumes: bool
) -> None:
    stage.has_rollout(state)
    stage.plans[Mode.PREPARING] = replace(stage.up, group_id="since")  # what a new look would plan

    shown = run("apply", *options).stdout

    assert (f"Rollout {ID} is " in shown) is resumes
    assert (f"Plan {stage.up.short_hash}" in shown) is resumes
    assert code(run("apply", *options, "--yes")) == 0
    assert (stage.applied[0][0].hash == stage.up.hash) is resumes
