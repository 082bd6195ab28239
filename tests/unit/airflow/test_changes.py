"""The surfaces of every declared change: command, operators, DAG, approval, page, reference.

What each change does on real parts is tested where its parts are.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from fastapi import FastAPI
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from airflow_eos_provider.changes import engine
from airflow_eos_provider.changes.change import MOST_LINES, Change, Plan, kind_of, options, read_request
from airflow_eos_provider.changes.declared import CHANGES, VERBS
from airflow_eos_provider.cli import change_commands as commands_of_changes, confirm
from airflow_eos_provider.cli.app import app
from airflow_eos_provider.cli.examples import examples
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.dag_factories.changes import FACTORIES
from airflow_eos_provider.errors import EosError, NotKnownError
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.operators import change_base as operators_of_changes
from airflow_eos_provider.operators.approval import approvable, approval_body
from airflow_eos_provider.operators.change_base import APPLIES, PLANS
from airflow_eos_provider.ui.documents import Table
from airflow_eos_provider.ui.looks import Seen
from airflow_eos_provider.ui.routes.changes import routes
from tests.reference import commands, written

pytestmark = pytest.mark.parametrize("change", CHANGES.values(), ids=lambda change: change.name)

_CLUSTER = SimpleNamespace(group_id="g")
KAFKA = KafkaSettings.of("broker:9092")


@dataclass
class Done:
    """A report that has come to its end, or has a problem."""

    problem: EosError | None = None

    def lines(self) -> list[str]:
        return ["it is done"]

    def to_dict(self) -> dict[str, Any]:
        return {"what": "done"}


class Stage:
    """A change without a cluster.

    :ivar plan: the plan that it makes.
    :ivar requests: what it was made from.
    :ivar applied: the plans that were carried out.
    """

    def __init__(self, change: Change[Any]) -> None:
        self.plan = Plan(change.name, "g", "c", "Do it?", ("do this", "do that"), {"this": 1}, sample(change))
        self.requests: list[Any] = []
        self.applied: list[Plan] = []
        self.report = Done()


@pytest.fixture
def stage(change: Change[Any], monkeypatch: pytest.MonkeyPatch) -> Stage:
    stage = Stage(change)

    @contextmanager
    def session(_: Any, cluster: Any) -> Iterator[Any]:
        assert (cluster == ConnectCluster.of_brokers(KAFKA)) is change.brokers_only
        yield SimpleNamespace(kafka=None, cluster=_CLUSTER)

    @contextmanager
    def group_change(*_: Any, **__: Any) -> Iterator[Any]:
        yield SimpleNamespace(taken_up=False, replan=lambda *_: None)

    def plan(_: Any, __: Any, request: Any) -> Plan:
        stage.requests.append(request)
        return stage.plan

    def apply(_: Any, __: Any, plan: Plan, act: Any, report: Any) -> Done:
        assert (act is not None) is change.takes_lease
        stage.applied.append(plan)
        return stage.report

    for name, stand_in in {"session": session, "plan": plan, "apply": apply}.items():
        monkeypatch.setattr(type(change), name, stand_in)
    monkeypatch.setattr(commands_of_changes, "load_cluster", lambda _: _CLUSTER)
    monkeypatch.setattr(commands_of_changes, "load_kafka", lambda _: KAFKA)
    monkeypatch.setattr(KafkaConnectHook, "get_cluster", lambda _: _CLUSTER)
    monkeypatch.setattr(operators_of_changes, "kafka_settings", lambda _: KAFKA)
    monkeypatch.setattr(engine, "read_journal", lambda *_: JournalContent())
    monkeypatch.setattr(engine, "Journal", lambda *_, **__: SimpleNamespace())
    monkeypatch.setattr(engine, "group_change", group_change)
    return stage


def command_of(change: Change[Any]) -> Any:
    return commands()[f"eos {change.name}"]


def first_example(change: Change[Any]) -> list[str]:
    """The words of the first example behind the command, without those that confirm."""
    words = shlex.split(change.examples[0], comments=True)
    return [*words[1 + len(change.name.split()) :]]


def sample(change: Change[Any]) -> dict[str, Any]:
    """What the first example asks for, by the fields of the request."""
    command = command_of(change)
    given = command.make_context("eos", first_example(change)).params
    return asked(change, given)


def asked(change: Change[Any], given: dict[str, Any]) -> dict[str, Any]:
    """What a command was given, by the fields of the request."""
    found = {name: given[name] for name in options(change.request) if given[name] not in (None, ())}
    return {name: str(value) if isinstance(value, Path) else value for name, value in found.items()}


def run(change: Change[Any], *more: str) -> Any:
    return CliRunner().invoke(app, [*change.name.split(), *first_example(change), *more])


def code(done: Any) -> int:
    return done.exception.exit_code if isinstance(done.exception, EosError) else done.exit_code


# The command


def test_the_command_has_an_option_for_each_field_and_every_example_is_one_of_it(change: Change[Any]) -> None:
    command = command_of(change)
    parameters = {each.name: each for each in command.params}
    for name, (option, field) in options(change.request).items():
        assert parameters[name].help == option.help
        assert parameters[name].required is (field.default is MISSING)
        assert len(getattr(parameters[name], "secondary_opts", ())) == 0
    assert command.epilog == examples(*change.examples)
    for example in change.examples:
        words = shlex.split(example, comments=True)
        assert words[: 1 + len(change.name.split())] == ["eos", *change.name.split()]
        command.make_context("eos", words[1 + len(change.name.split()) :])
    assert change.summary in command.help
    assert ("take_over" in parameters) is change.takes_lease


def test_without_a_terminal_nothing_is_changed_and_the_command_that_does_it_is_named(
    change: Change[Any], stage: Stage
) -> None:
    done = run(change)
    assert code(done) == 3
    assert "Nothing changed. Pass --yes or --plan HASH" in str(done.exception)
    assert f"eos {change.name}" in str(done.exception)
    assert f"--plan {stage.plan.short_hash}" in str(done.exception)
    assert "do this" in done.stdout
    assert stage.applied == []
    skipped = 1 + len(change.name.split())
    for words in (shlex.split(example, comments=True)[skipped:] for example in change.examples):
        if not {"--plan", "--yes"} & set(words):
            refused = CliRunner().invoke(app, [*change.name.split(), *words])
            said = shlex.split(str(refused.exception).rpartition(":  ")[2])[skipped:]
            given, again = (command_of(change).make_context("eos", each[:]).params for each in (words, said))
            assert asked(change, again) == asked(change, given)


def test_of_a_long_plan_it_says_how_many_lines_are_not_shown(change: Change[Any], stage: Stage) -> None:
    stage.plan = replace(stage.plan, lines=tuple(f"line {number}" for number in range(MOST_LINES + 10)))
    assert "line 299\n… and 10 more lines; --json has all." in run(change).stdout


def test_yes_applies_what_it_shows_and_a_hash_only_that_plan(change: Change[Any], stage: Stage) -> None:
    for confirmed in (["--yes"], ["--plan", stage.plan.short_hash]):
        done = run(change, *confirmed)
        assert code(done) == 0, done.output
        assert "do that" in done.stdout
        assert "it is done" in done.stdout
    assert stage.applied == [stage.plan, stage.plan]
    assert code(run(change, "--plan", "0" * 12)) == 3
    assert code(run(change, "--plan", "0" * 3)) == 2
    assert len(stage.applied) == 2


def test_yes_is_not_enough_where_the_plan_needs_its_hash(change: Change[Any], stage: Stage) -> None:
    stage.plan = replace(stage.plan, needs_hash="It cannot be undone.")
    done = run(change, "--yes")
    assert code(done) == 3
    assert "Pass --plan HASH: It cannot be undone." in str(done.exception)
    assert stage.applied == []
    assert code(run(change, "--plan", stage.plan.short_hash)) == 0
    assert stage.applied == [stage.plan]


@pytest.mark.parametrize("answer", ["y", "n"])
def test_on_a_terminal_it_asks(change: Change[Any], stage: Stage, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirm, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    for more in ([], ["--json"]):
        done = CliRunner().invoke(app, [*change.name.split(), *first_example(change), *more], input=answer)
        assert "Do it?" in done.stderr
        assert "do this" in (done.stderr if more else done.stdout)
        assert code(done) == (0 if answer == "y" else 3)
    assert len(stage.applied) == (2 if answer == "y" else 0)


def test_the_document_has_plan_and_report_and_nothing_else_is_on_standard_output(
    change: Change[Any], stage: Stage
) -> None:
    shown = run(change, "--json")
    assert code(shown) == 3
    assert json.loads(shown.stdout) == {"plan": stage.plan.to_dict(), "applied": False, "report": None}
    done = run(change, "-o", "json", "--yes")
    assert json.loads(done.stdout) == {"plan": stage.plan.to_dict(), "applied": True, "report": {"what": "done"}}


def test_where_there_is_nothing_to_do_nothing_is_asked(change: Change[Any], stage: Stage) -> None:
    stage.plan = replace(stage.plan, nothing="It is as it should be.")
    done = run(change)
    assert code(done) == 0
    assert "It is as it should be. Nothing to do." in done.stdout
    assert stage.applied == []


def test_what_was_done_is_shown_before_the_problem_that_it_ended_with(change: Change[Any], stage: Stage) -> None:
    stage.report = Done(NotKnownError("half of it"))
    done = run(change, "--yes")
    assert "it is done" in done.stdout
    assert done.exception is stage.report.problem


# The operators


def test_the_plan_operator_takes_each_field_also_from_a_template(
    change: Change[Any], stage: Stage, context: dict[str, Any]
) -> None:
    plans = PLANS[change.name]
    given = sample(change)
    words = {name: ",".join(value) if isinstance(value, (list, tuple)) else str(value) for name, value in given.items()}
    operator = plans(task_id="plan", **words)
    assert set(operator.template_fields) == {"conn_id", *options(change.request)}
    assert operator.execute(context) == stage.plan.to_dict()
    assert stage.requests == [read_request(change.request, given)]
    stage.plan = replace(stage.plan, nothing="It is as it should be.")
    with pytest.raises(AirflowSkipException, match="as it should be"):
        operator.execute(context)
    with pytest.raises(TypeError):
        plans(task_id="other", no_such_field=1, **words)


def test_the_other_operator_applies_the_approved_plan_alone(
    change: Change[Any], stage: Stage, context: dict[str, Any]
) -> None:
    applies = APPLIES[change.name]
    plan, approval = stage.plan.to_dict(), {"plan_hash": stage.plan.hash}
    assert applies(task_id="a", plan=plan, approval=approval).execute(context) == {"what": "done"}
    assert len(stage.applied) == 1
    other = {"plan_hash": "b" * 64}
    for refused, why in ((other, "not the approved one"), (None, "is not approved")):
        with pytest.raises(AirflowFailException, match=why):
            applies(task_id="b", plan=plan, approval=refused).execute(context)
    for broken in ({**plan, "content": {}}, {**plan, "kind": "another"}):
        with pytest.raises(AirflowFailException, match="no plan of"):
            applies(task_id="c", plan=broken).execute(context)
    assert len(stage.applied) == 1
    stage.report = Done(NotKnownError("half of it"))
    with pytest.raises(NotKnownError):
        applies(task_id="d", plan=plan).execute(context)


# The DAG and its approval


def test_the_form_asks_for_each_field_with_a_title_and_its_defaults_are_those_of_the_request(
    change: Change[Any],
) -> None:
    factory = FACTORIES[change.dag]
    dag = factory(dag_id=f"form_{change.name.replace(' ', '_')}", conn_id="cluster_7")
    asked = {name for name, (option, _) in options(change.request).items() if option.title}
    assert set(dag.params) == asked | {"reason"} | ({"take_over"} if change.takes_lease else set())
    plan = dag.get_task("plan")
    filled = {name: value for name, value in sample(change).items() if name in asked}
    params = {name: dag.params[name] for name in asked - filled.keys()} | {
        name: ", ".join(value) if kind_of(change.request, name) is tuple else value for name, value in filled.items()
    }
    rendered = {name: plan.render_template(getattr(plan, name), {"params": params}) for name in options(change.request)}
    assert read_request(change.request, rendered) == read_request(change.request, filled)
    assert [task.task_id for task in dag.topological_sort()] == ["plan", "approve", "apply"]
    apply = dag.get_task("apply")
    assert apply.upstream_task_ids == {"plan", "approve"}
    assert (plan.conn_id, apply.conn_id) == ("cluster_7", "cluster_7")


def test_a_field_that_the_author_of_the_dag_gives_is_not_asked_for(change: Change[Any]) -> None:
    factory = FACTORIES[change.dag]
    name = next(iter(options(change.request)))
    dag = factory(dag_id=f"fixed_{change.name.replace(' ', '_')}", **{name: "fixed"})
    assert name not in dag.params
    assert getattr(dag.get_task("plan"), name) == "fixed"
    with pytest.raises(TypeError, match="no_such_field"):
        factory(no_such_field=1)


@pytest.mark.parametrize("lines", [3, MOST_LINES + 10])
def test_an_approver_sees_the_question_and_the_lines_or_how_many_are_not_shown(
    change: Change[Any], stage: Stage, lines: int
) -> None:
    plan = replace(stage.plan, lines=tuple(f"  line {number} {'x' * 1_000}" for number in range(lines)))
    shown = approvable(plan.to_dict())
    body = approval_body(shown, "zombies")
    assert shown.question == f"Do it? (plan {plan.short_hash})"
    assert change.title in body
    assert plan.hash in body
    listed = [line.strip("-` ") for line in body.splitlines() if line.startswith("- `")]
    assert listed == [line.strip() for line in plan.lines[:MOST_LINES]]
    assert ("and 10 more lines, **which are not shown here**" in body) is (lines > MOST_LINES)
    assert shown.whole.splitlines() == list(plan.lines)


# The page


def test_the_page_shows_its_rows_in_parts_and_only_those_that_are_asked_for(change: Change[Any]) -> None:
    if not change.rows:
        pytest.skip("nothing of it is on the page")
    wanted = {name: True if name.startswith("pending") else "one" for name in change.filters}
    rows = [{"n": n, **(wanted if n % 3 == 0 else dict.fromkeys(change.filters, False))} for n in range(180)]
    look = Table.of(rows, {"group_id": "g"})

    class Looks:
        async def see(self, *_: Any, **__: Any) -> Seen[Any]:
            return Seen(look, 82.0, 1.0, 30.0, None, is_looking=False)

    application = FastAPI()
    application.include_router(routes(Looks()))  # type: ignore[arg-type]
    ask: Callable[..., Any] = TestClient(application).get
    path = f"/api/clusters/c/{change.name.split()[0]}"
    pages = [ask(path, params={"page": page, "page_size": 100}).json() for page in (1, 2)]
    assert [row for page in pages for row in page["items"]] == rows
    assert {page["group_id"] for page in pages} == {"g"}
    for name, value in wanted.items():
        found = ask(path, params={name: "true" if value is True else value}).json()
        assert (found["found"], found["total"]) == (60, 180)
    assert ask(path, params=dict.fromkeys(change.filters, "nobody")).json()["found"] == 0


# The reference


def test_its_rights_and_texts_are_on_record(change: Change[Any]) -> None:
    assert (change.name in VERBS) is not change.brokers_only
    page = written("reference/changes.md").partition(f"## {change.title}\n")[2]
    for text in (
        change.summary,
        *change.examples,
        *(option.help for option, _ in options(change.request).values()),
    ):
        assert text in page
    assert change.summary.endswith(".")
