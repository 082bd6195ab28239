"""``eos fencing`` on a real cluster: due and failed rounds, zombies' transactions, and how a failed task is named."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import KafkaException, Producer
from typer.testing import CliRunner

from airflow_eos_provider.changes.change import Plan
from airflow_eos_provider.changes.engine import carry_out
from airflow_eos_provider.changes.fencing.change import FENCING, FencingRequest
from airflow_eos_provider.cli.app import app
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.connect.task_failures import FailureKind
from airflow_eos_provider.connect.topics.config_topic import ConnectorConfigState, read_cluster_state
from airflow_eos_provider.errors import ConfigurationError, ConnectRestError, EosError, PlanMovedError, RefusedError
from airflow_eos_provider.journal.journal import RolloutState, read_journal
from airflow_eos_provider.kafka.acl_values import Acl, Operation, Pattern, Resource
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription, TransactionsClient
from airflow_eos_provider.kafka.read.reader import LogRecord, read_to_end
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.rollout.drift.contradictions import findings
from airflow_eos_provider.rollout.observe.observer import Observer
from airflow_eos_provider.ui.routes.changes import look_at
from tests.changed import changed
from tests.integration.named_listener import NamedListener, denied
from tests.integration.offsets_cluster import LINES, Cluster, killed, open_transaction
from tests.waiting import status_of, wait_for

TESTABLE_SOURCE = "org.apache.kafka.connect.integration.TestableSourceConnector"

#: A file source that has read all of its file, so that its task runs and writes nothing.
IDLE = "idle"
#: A source with several tasks that write all the time.
BUSY = "busy"
#: Who fences under a name of its own; the workers have none.
OPERATOR, PASSWORD = "operator", "canary-4c1e"


@pytest.fixture(scope="module")
def named() -> NamedListener:
    """The listener of those who say who they are, of brokers with an authorizer."""
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    return NamedListener(OPERATOR, PASSWORD, authorizer)


@pytest.fixture(scope="module")
def cluster(lab_factory: Callable[..., Lab], named: NamedListener) -> Iterator[Cluster]:
    """One enabled worker, and a broker with an authorizer that allows everything until there are rules.

    The broker has a second listener, for those who say who they are.
    """
    with named.given():
        cluster = Cluster(lab_factory(name="fence", mode=Mode.ENABLED, workers=1, test_connectors=True))
        lab = cluster.lab
        with cluster.rest:
            cluster.source(IDLE)
            lab.create_topic(BUSY, 1)
            cluster.rest.create(BUSY, _busy_config(3))
            wait_for("both run", lambda: _runs(lab, IDLE, 1) and _runs(lab, BUSY, 3))
            _write_operators_cluster_file(lab, named)
            yield cluster


@pytest.fixture
def lab(cluster: Cluster) -> Lab:
    return cluster.lab


def _operators_cluster_file(lab: Lab) -> Path:
    return lab.data_dir / "operator.yaml"


def _write_operators_cluster_file(lab: Lab, named: NamedListener) -> None:
    """The lab's cluster as the operator reaches it."""
    cluster = yaml.safe_load(lab.cluster_file.read_text(encoding="utf-8"))
    cluster["bootstrap_servers"] = named.bootstrap_servers
    cluster["client"] = named.client
    file = _operators_cluster_file(lab)
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(cluster), encoding="utf-8")


def _eos(lab: Lab, *arguments: str, expect: int = 0, cluster_file: Path | None = None) -> tuple[str, str]:
    """``eos`` in this process: its standard output, and its error."""
    done = CliRunner().invoke(app, [*arguments, "--cluster", str(cluster_file or lab.cluster_file)])
    error = done.exception
    code = error.exit_code if isinstance(error, EosError) else done.exit_code
    assert code == expect, f"{code}: {done.output}{error!r}"
    return done.stdout, str(error or "")


def _busy_config(tasks: int) -> dict[str, str]:
    config = {"connector.class": TESTABLE_SOURCE, "topic": BUSY, "throughput": "20", "messages.per.poll": "5"}
    return {**config, "tasks.max": str(tasks)}


def _state(lab: Lab, name: str) -> ConnectorConfigState | None:
    return read_cluster_state(lab.cluster().kafka, f"{lab.group_id}-configs").connectors.get(name)


def _reconfigure(cluster: Cluster, batch_size: str) -> None:
    """Give the idle connector another configuration, and wait until its new task has started.

    REST may say RUNNING of the task before for a while; the new one has started once it has taken its id.
    """
    holder = _holder(cluster.lab)

    def is_taken() -> bool:
        """The abort of a zombie's transaction moves the epoch, too; the id is empty when the task has it."""
        known = _known(cluster.lab)
        return (known.producer_id, known.producer_epoch) != holder and known.state is TransactionState.EMPTY

    cluster.rest.put_config(IDLE, {**cluster.config(IDLE), "batch.size": batch_size})
    wait_for("its configuration is read", lambda: _batch_size(cluster.lab, IDLE) == batch_size)
    wait_for("its new task has its id", is_taken)


def _batch_size(lab: Lab, name: str) -> str | None:
    state = _state(lab, name)
    return state and state.config.get("batch.size")


def _has_failed(lab: Lab, tasks: int) -> bool:
    """Whether the busy connector's round is pending, and all its tasks have failed."""
    state = _state(lab, BUSY)
    return state is not None and state.pending_fencing and _states(lab, BUSY) == ["FAILED"] * tasks


def _states(lab: Lab, name: str) -> list[str]:
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        status = rest.statuses().get(name)
    return [task.state for task in status.tasks] if status else []


def _runs(lab: Lab, name: str, tasks: int) -> bool:
    state = _state(lab, name)
    if state is None or (state.commit_offset or 0) < state.config_offset:  # its new task configs are yet to come
        return False
    on_record = (state.task_count_record, state.pending_fencing) == (tasks, False)
    return on_record and _states(lab, name) == ["RUNNING"] * tasks


def _look(lab: Lab, *arguments: str, cluster_file: Path | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What ``eos fencing list`` says, and what of one connector."""
    document = json.loads(_eos(lab, "fencing", "list", *arguments, "--json", cluster_file=cluster_file)[0])
    return document, document["connectors"][0]


def _applied(lab: Lab, *arguments: str) -> list[dict[str, Any]]:
    """What ``eos fencing apply`` has done for each connector."""
    document = json.loads(_eos(lab, "fencing", "apply", *arguments, "--json")[0])
    assert document["applied"] is True
    found: list[dict[str, Any]] = document["report"]["connectors"]
    return found


@contextmanager
def _zombie(lab: Lab) -> Iterator[None]:
    """A producer of the idle connector's task that has written something and is stuck; the body fences it."""
    zombie = open_transaction(lab.bootstrap_servers, f"{lab.group_id}-{IDLE}-0", IDLE)
    yield
    with pytest.raises(KafkaException):
        zombie.commit_transaction(180)


def _known(lab: Lab) -> TransactionDescription:
    """What the brokers know of the transactional id of the idle connector's task."""
    transactional_id = f"{lab.group_id}-{IDLE}-0"
    with TransactionsClient(lab.cluster().kafka) as client:
        return client.describe([transactional_id])[transactional_id]


def _holder(lab: Lab) -> tuple[int, int]:
    """Who has that id now: a producer id and its epoch."""
    known = _known(lab)
    return known.producer_id, known.producer_epoch


def _assert_idle_goes_on(cluster: Cluster, line: str) -> None:
    """One more line is delivered, and every line of the file once."""
    cluster.add(IDLE, line)
    wait_for("the next line is there", lambda: cluster.read(IDLE)[line])
    assert cluster.read(IDLE) == Counter(cluster.file(IDLE).read_text(encoding="utf-8").splitlines())


def _ensure_three_tasks(cluster: Cluster) -> None:
    """Give the busy connector its three tasks back, if a test has left it fewer."""
    if not _runs(cluster.lab, BUSY, 3):
        cluster.rest.put_config(BUSY, _busy_config(3))
        wait_for("three tasks run", lambda: _runs(cluster.lab, BUSY, 3))


def _stop_busy(cluster: Cluster) -> None:
    """Stop it, so that no task is cut off in mid-write: its producer may take half a minute to close then."""
    cluster.rest.stop(BUSY)
    wait_for("it has stopped", lambda: _is_stopped(cluster.lab))


def _assert_busy_writes_exactly(lab: Lab) -> None:
    """Its tasks go on to write, and each task's records have the numbers from 1 on, each once."""

    def records() -> list[LogRecord]:
        return read_to_end(lab.cluster().kafka, BUSY).records

    end = len(records())
    wait_for("they write", lambda: len(records()) > end + 10)
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for record in records():
        found = re.search(rb"value-(.+)-(\d+)", record.value or b"")
        assert found, record.value
        numbers[found[1].decode()].append(int(found[2]))
    assert len(numbers) == 3
    for task, each in numbers.items():
        assert sorted(each) == list(range(min(each), max(each) + 1)), task
        assert min(each) <= 1, task


def test_where_nothing_is_pending_and_nothing_open_nothing_is_done(cluster: Cluster, lab: Lab) -> None:
    """A task at work has one transaction after the other."""
    _ensure_three_tasks(cluster)
    changes = read_journal(lab.cluster().kafka, lab.group_id).changes
    document, busy = _look(lab, BUSY)
    assert (document["nothing_to_do"], document["hash"], busy["pending_fencing"]) == (True, None, False)
    assert (busy["tasks"], busy["task_count_record"], busy["fence"]) == (3, 3, [])
    assert [(one["id"], one["held"]) for one in busy["ids"]] == [
        (f"{lab.group_id}-{BUSY}-{n}", False) for n in range(3)
    ]
    assert all(one["producer_id"] is not None for one in busy["ids"])
    assert "Nothing to do" in _eos(lab, "fencing", "apply", "--yes")[0]
    assert read_journal(lab.cluster().kafka, lab.group_id).changes == changes
    assert "one of busy, idle" in _eos(lab, "fencing", "list", "busi", expect=2)[1]


def test_a_first_start_and_one_task_for_one_need_no_round(cluster: Cluster, lab: Lab) -> None:
    """Connect fences by a round only where there were several tasks, or are to be: one task fences the one before."""
    name, rest = "young", cluster.rest
    config = {**cluster.config(name), "file": str(cluster.file(IDLE))}
    lab.create_topic(name, 1)

    def looked() -> tuple[bool, bool, int | None, list[str]]:
        document, young = _look(lab, name)
        ids = [
            f"{one['id'].rpartition('-')[2]} {one['state']}" for one in young["ids"] if one["producer_id"] is not None
        ]
        return document["nothing_to_do"], young["pending_fencing"], young["task_count_record"], ids

    rest.create(name, config, "STOPPED")
    wait_for("it is on record", lambda: _state(lab, name) is not None)
    assert looked() == (True, False, None, [])
    rest.resume(name)
    wait_for("its first task runs", lambda: _runs(lab, name, 1))
    wait_for("it has delivered", lambda: looked() == (True, False, 1, ["0 CompleteCommit"]))
    rest.put_config(name, {**config, "batch.size": "7"})
    wait_for("it is read", lambda: _batch_size(lab, name) == "7")
    wait_for("its second task runs", lambda: _runs(lab, name, 1))
    wait_for("it has the id", lambda: looked() == (True, False, 1, ["0 Empty"]))
    rest.delete(name)


@pytest.mark.first
def test_a_zombie_is_fenced_and_the_task_that_it_stood_in_for_goes_on(cluster: Cluster, lab: Lab) -> None:
    with _zombie(lab):
        assert f"of 600 s, in {IDLE}-0" in _eos(lab, "fencing", "list", IDLE)[0]
        shown, refused = _eos(lab, "fencing", "apply", IDLE, expect=3)
        assert "task 0 runs and would be fenced" in shown
        plan = re.search(rf"Nothing changed.*eos fencing apply {IDLE} .*--plan (\w+)", refused, re.DOTALL)
        assert plan is not None
        everything = json.loads(_eos(lab, "fencing", "list", "--json")[0])  # not named, so the task is left alone
        assert everything["nothing_to_do"] is True
        (printed,) = (each for each in everything["connectors"] if each["connector"] == IDLE)
        assert "left alone" in printed["why"]
        page = look_at(FENCING, lab.cluster())
        assert page.head["nothing_to_do"] is True
        assert [each for each in page.items if each["connector"] == IDLE] == [printed]
        assert printed["ids"][0]["producer_epoch"] is not None

        _reconfigure(cluster, "1000")  # one task follows one: its own start fences the zombie
        assert "does not fit any more" in _eos(lab, "fencing", "apply", IDLE, "--plan", plan[1], expect=3)[1]
        wait_for("it runs", lambda: _runs(lab, IDLE, 1))

    with _zombie(lab):
        found, idle = _look(lab, IDLE)
        assert (idle["fence"], idle["restart"], idle["running"]) == ([0], [0], [0])
        (report,) = _applied(lab, IDLE, "--plan", found["hash"][:12])
        assert (report["restarted"], report["problem"], report["task_count_record"]) == ([0], None, 1)
        (one,) = report["ids"]
        assert one["id"] == f"{lab.group_id}-{IDLE}-0"
        assert one["before"] != one["fenced"] != one["after"] is not None
    _assert_idle_goes_on(cluster, "after-the-zombie")


def test_new_task_configs_in_mid_round_refuse_the_rest(cluster: Cluster, lab: Lab) -> None:
    wait_for("it runs", lambda: _runs(lab, IDLE, 1))

    def reconfigure(line: str) -> None:
        if "ids are fenced" in line:
            _reconfigure(cluster, "1500")

    with _zombie(lab):
        report = changed(lab.cluster(), FENCING, FencingRequest((IDLE,)), report=reconfigure)
        assert isinstance(report.problem, RefusedError)
        assert "during the round" in report.problem.found
        assert report.document["connectors"][0]["restarted"] == []
        wait_for("it runs", lambda: _runs(lab, IDLE, 1))


def test_a_plan_that_was_carried_out_is_not_carried_out_again(lab: Lab) -> None:
    """Airflow's next try after a kill between the end of the round and the end of the task."""
    lines: list[str] = []
    with FENCING.session(lab.cluster()) as session:

        def apply(plan: Plan, *, as_found: bool = False) -> dict[str, Any]:
            done = carry_out(FENCING, session, plan, actor="a test", as_found=as_found, report=lines.append)
            (report,) = done.to_dict()["connectors"]
            return dict(report)

        with _zombie(lab):
            plan = FENCING.plan(session, FencingRequest((IDLE,)))
            first, holder = apply(plan), _holder(lab)
            assert (len(first["ids"]), first["problem"]) == (1, None)
            again = apply(plan)
            assert (again["ids"], again["problem"], again["task_count_record"]) == ([], None, 1)
            assert "has carried this plan out" in lines[-1]
            assert _holder(lab) == holder

        with _zombie(lab):  # something is due again, and it is not what was planned
            with pytest.raises(PlanMovedError):
                apply(plan)
            assert len(apply(plan, as_found=True)["ids"]) == 1  # as --yes does: the plan is made under the lease
            *_, last = read_journal(session.kafka, lab.group_id).changes.values()
            assert last.plan["hash"] != plan.hash


def test_a_fencing_that_is_killed_between_fence_and_restart_is_taken_up_and_the_task_comes_back(
    cluster: Cluster, lab: Lab
) -> None:
    with _zombie(lab):
        killed(lab, f"{IDLE}: fence", "carried-out", "fencing", "apply", IDLE, "--yes")
        assert "was begun and not finished" in _eos(lab, "fencing", "apply", IDLE, expect=3)[0]
        killed(lab, f"{IDLE}: restart", "announced", "fencing", "apply", "--yes")
        _eos(lab, "fencing", "apply", "--yes")
        *_, last = read_journal(lab.cluster().kafka, lab.group_id).changes.values()
        assert (last.state, last.done) == (RolloutState.DONE, (f"{IDLE}: fence", f"{IDLE}: restart"))
    _assert_idle_goes_on(cluster, "after-the-kill")


def test_a_leader_that_was_fenced_itself_hears_a_request_again(cluster: Cluster, lab: Lab) -> None:
    """As when two workers lead for a moment: the one that is fenced answers 500, and claims the right anew."""

    def fence_the_leader() -> None:
        leader = {"bootstrap.servers": lab.bootstrap_servers, "transactional.id": f"connect-cluster-{lab.group_id}"}
        Producer(leader).init_transactions(180)

    name, rest = "short-lived", cluster.rest
    with ConnectRest(lab.connect_urls[0], retry_seconds=0) as at_once:
        fence_the_leader()
        with pytest.raises(ConnectRestError, match="Failed to write to config topic"):
            at_once.put_config(name, cluster.config(IDLE))
    rest.put_config(name, cluster.config(IDLE))
    fence_the_leader()
    rest.delete(name)
    assert name not in rest.connectors()


def test_a_round_that_an_acl_has_failed_names_it_and_is_done_once_that_is_granted(cluster: Cluster, lab: Lab) -> None:
    """Three tasks become two: the leader's round of three ids fails, and Connect does not repeat it."""
    _ensure_three_tasks(cluster)
    _stop_busy(cluster)
    _, busy = _look(lab, "--pending")
    assert (busy["target_state"], busy["fence"], busy["restart"]) == ("STOPPED", [0, 1, 2], [])
    with _denied(lab, "User:ANONYMOUS", lab.cluster()):
        cluster.rest.put_config(BUSY, _busy_config(2))
        cluster.rest.resume(BUSY)
        wait_for("the round has failed", lambda: _has_failed(lab, 2))
        what, remedy = _named(lab, BUSY, FailureKind.NOT_AUTHORIZED)
        assert "FAILED tasks 0, 1: not authorized (TransactionalIdAuthorizationException)" in what
        assert "Write and Describe on TransactionalId <group>-<connector>-<task>" in remedy
        document, busy = _look(lab, "--pending")
        assert [one["connector"] for one in document["connectors"]] == [BUSY]
        assert (busy["fence"], busy["restart"], busy["awaits_record"]) == ([0, 1, 2], [0, 1], True)
        refused = _eos(lab, "fencing", "apply", "--pending", "--yes", expect=2)[1]
        assert "User:ANONYMOUS" in refused
        assert f"Write on TransactionalId {lab.group_id}-{BUSY}-" in refused

    plan = _look(lab, "--pending")[0]["hash"]
    (report,) = _applied(lab, "--pending", "--plan", plan[:12])
    assert (report["connector"], report["problem"], report["task_count_record"]) == (BUSY, None, 2)
    assert [one["id"].rpartition("-")[2] for one in report["ids"]] == ["0", "1", "2"]
    assert report["restarted"] == [0, 1]
    wait_for("two tasks run", lambda: _runs(lab, BUSY, 2))
    _assert_busy_writes_exactly(lab)


def test_a_round_that_is_denied_only_to_who_asks_for_it_names_the_principal_and_leaves_the_tasks_alone(
    cluster: Cluster, lab: Lab
) -> None:
    operators = _operators_cluster_file(lab)
    _look(lab, BUSY, cluster_file=operators)
    with _denied(lab, f"User:{OPERATOR}", ConnectCluster.from_file(operators)):
        _stop_busy(cluster)
        before = _epochs(lab)
        output, refused = _eos(lab, "fencing", "apply", "--pending", "--yes", expect=2, cluster_file=operators)
        assert f"User:{OPERATOR}" in refused
        assert f"Write on TransactionalId {lab.group_id}-{BUSY}-" in refused
        assert PASSWORD not in output + refused
        assert _epochs(lab) == before  # none of the ids was fenced
        cluster.rest.resume(BUSY)  # Connect's own round is not denied anything
        wait_for("its tasks run again", lambda: _runs(lab, BUSY, len(before)))
        _assert_busy_writes_exactly(lab)

    _stop_busy(cluster)
    done, _ = _eos(lab, "fencing", "apply", "--pending", "--yes", "--json", cluster_file=operators)
    (report,) = json.loads(done)["report"]["connectors"]
    assert (report["connector"], report["problem"]) == (BUSY, None)
    assert [one["id"] for one in report["ids"]] == sorted(before)
    cluster.rest.resume(BUSY)
    wait_for("its tasks run again", lambda: _runs(lab, BUSY, len(before)))
    _assert_busy_writes_exactly(lab)


def test_a_reset_that_may_not_fence_leaves_the_connector_running_and_goes_on_once_it_may(
    cluster: Cluster, lab: Lab
) -> None:
    operators, rest = _operators_cluster_file(lab), cluster.rest
    name = f"{BUSY}-denied"  # the rules are about it, too
    reset = ("offsets", "reset", name, "--yes")
    cluster.source(name)
    with _denied(lab, f"User:{OPERATOR}", ConnectCluster.from_file(operators)):
        for _ in range(2):
            refused = _eos(lab, *reset, expect=2, cluster_file=operators)[1]
            assert f"User:{OPERATOR}" in refused
            assert f"Write on TransactionalId {lab.group_id}-{name}-0" in refused
            assert status_of(rest, name).state == "RUNNING"
            change = read_journal(lab.cluster().kafka, lab.group_id).open_change
            assert change is not None
            assert (change.about, change.state) == (name, RolloutState.PAUSED)
        wait_for("its task runs", lambda: _runs(lab, name, 1))
        assert cluster.read(name) == Counter(LINES)

    (report,) = json.loads(_eos(lab, *reset, "--json", cluster_file=operators)[0])["report"]["connectors"]
    assert report["written"] == 1
    cluster.until_read(name, 2)
    rest.delete(name)


def test_a_round_that_is_denied_only_to_the_connectors_admin_principal_fails_and_is_done_once_that_is_granted(
    cluster: Cluster, lab: Lab, named: NamedListener
) -> None:
    """The producers and the operator have another principal, which is denied nothing."""
    admin = {"bootstrap.servers": named.bootstrap_servers, **named.java_client}
    overrides = {f"admin.override.{name}": value for name, value in admin.items()}
    _ensure_three_tasks(cluster)
    _stop_busy(cluster)
    with _denied(lab, f"User:{OPERATOR}", ConnectCluster.from_file(_operators_cluster_file(lab))):
        cluster.rest.put_config(BUSY, {**_busy_config(2), **overrides})
        cluster.rest.resume(BUSY)
        wait_for("the round has failed", lambda: _has_failed(lab, 2))
        _named(lab, BUSY, FailureKind.NOT_AUTHORIZED)
        output, problem = _eos(lab, "fencing", "apply", "--pending", "--yes", expect=1)
        assert "3 ids fenced, 2 tasks restarted, task count record 3" in output
        assert "its admin client (admin.override.* or the workers'), which Connect fences with" in problem
        assert PASSWORD not in output + problem

    _eos(lab, "fencing", "apply", "--pending", "--yes")
    wait_for("two tasks run", lambda: _runs(lab, BUSY, 2))
    _assert_busy_writes_exactly(lab)


def _named(lab: Lab, name: str, kind: FailureKind) -> tuple[str, str]:
    """The finding of a connector of which each task has failed, all of this kind; and its remedy."""
    with Observer(lab.cluster()) as observer:
        observation = observer.observe()
    assert observation.statuses is not None
    tasks = observation.statuses[name].tasks
    assert [observation.failure_of(name, task.number).kind for task in tasks] == [kind] * len(tasks)
    ((what, remedy),) = [(f.found, f.remedy) for f in findings(observation) if f"connector {name} " in f.found]
    return what, remedy


def _epochs(lab: Lab) -> dict[str, tuple[int, int]]:
    """By transactional id of the busy connector's tasks: producer id and epoch."""
    state = _state(lab, BUSY)
    assert state is not None
    ids = [f"{lab.group_id}-{BUSY}-{task}" for task in range(state.task_count_record or 0)]
    with TransactionsClient(lab.cluster().kafka) as client:
        described = client.describe(ids)
    return {one: (described[one].producer_id, described[one].producer_epoch) for one in ids}


def _is_stopped(lab: Lab) -> bool:
    state = _state(lab, BUSY)
    return state is not None and state.target_state == "STOPPED" and _states(lab, BUSY) == []


@contextmanager
def _denied(lab: Lab, principal: str, cluster: ConnectCluster) -> Iterator[None]:
    """A principal, which this cluster's description has, may not write with the busy connector's ids meanwhile."""
    prefix = f"{lab.group_id}-{BUSY}-"
    with denied(lab, Acl(principal, Operation.WRITE, Resource.TRANSACTIONAL_ID, prefix, Pattern.PREFIXED)):
        wait_for("the rule holds", lambda: _is_denied(cluster))
        yield
    wait_for("the rule is gone", lambda: not _is_denied(cluster))


def _is_denied(cluster: ConnectCluster) -> bool:
    """Whether the broker refuses to fence an id that the rules are about, and that no task has."""
    with TransactionsClient(cluster.kafka) as client:
        try:
            client.fence([f"{cluster.group_id}-{BUSY}-none"])
        except ConfigurationError:
            return True
    return False


def test_the_rights_of_a_cluster_that_runs_are_there_each_by_an_attempt(lab: Lab) -> None:
    """Its workers are anonymous, and so the brokers answer for them; the topics are those that REST knows."""
    found = json.loads(_eos(lab, "acl", "check", "--json")[0])
    assert (found["missing"], found["unknown"]) == (0, 0)
    assert {rule["by"] for rule in found["rules"]} == {"an attempt"}
    asked = {(rule["connector"], rule["operation"], rule["name"]) for rule in found["rules"]}
    assert (IDLE, "Write", IDLE) in asked
    assert (BUSY, "Write", f"{lab.group_id}-{BUSY}-0") in asked  # how many tasks it has, other tests decide
