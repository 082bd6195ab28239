"""What ``eos status`` says of a cluster, and what it does not say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_eos_provider.cli import common
from airflow_eos_provider.cli.cluster import status
from airflow_eos_provider.cluster_status import collisions
from airflow_eos_provider.connect.group import Assignment, Member, WorkerGroup
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import TaskStatus
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription
from airflow_eos_provider.output import Output
from airflow_eos_provider.rollout.drift.contradictions import findings
from airflow_eos_provider.terminal import DataConsole
from tests.unit.rollout.conftest import Cluster


@pytest.mark.parametrize(("mode", "word"), [(Mode.DISABLED, "not used"), (Mode.ENABLED, "pending")])
def test_fencing_is_pending_only_where_a_worker_would_do_it(
    mode: Mode, word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status, "console", DataConsole(width=120))
    cluster = Cluster(mode)
    for name in cluster.configs:
        cluster.connector(name, fencing=None, pending_fencing=True)  # as in a group that was never enabled
    seen = cluster.observe()

    status._show_connectors(seen)

    shown = capsys.readouterr().out
    assert word in shown
    assert bool(findings(seen)) is ("pending" in shown)


@pytest.mark.parametrize("width", [80, 160])
def test_no_id_is_broken_or_cut(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """160 is the width where the output goes into a pipe."""
    monkeypatch.setattr(status, "console", DataConsole(width=width))
    name = "connect-orders-production-mirror-source-connector-0"
    transaction = TransactionDescription(name, TransactionState.ONGOING, 123_456, 7, 60_000, 990_000_000, ())
    seen = Cluster(Mode.ENABLED).see(transactions=(transaction,)).observe()

    status._show_transactions(seen)
    status._show_workers(seen)

    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line[:1].strip()]
    assert {name, "w1:8083*", "w2:8083", "w3:8083"} <= set(rows)


def test_tables_are_bounded_what_is_open_comes_first_and_the_rest_is_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status, "console", DataConsole(width=120))
    cluster, many = Cluster(Mode.ENABLED), status.MOST_ROWS + 7
    for number in range(many - len(cluster.configs)):
        cluster.add_connector(f"x{number}")
    cluster.status("file", tasks=tuple(TaskStatus(n, "RUNNING", "w1:8083") for n in range(status.MOST_TASKS + 5)))
    ended = TransactionDescription("ended", TransactionState.EMPTY, 1, 0, 60_000, None, ())
    open_one = ended._replace(transactional_id="open", state=TransactionState.ONGOING, started_at_ms=990_000_000)
    seen = cluster.see(transactions=(*[ended] * (many - 1), open_one)).observe()

    status._show_connectors(seen)
    status._show_transactions(seen)

    shown = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in shown if " more " in line] == [
        "and 5 more tasks",
        "and 7 more connectors: 'eos status --json' has all",
        "and 7 more ids: 'eos status --json' has all",
    ]
    assert sum(line.startswith("ended") for line in shown) == status.MOST_ROWS - 1
    assert sum(line.startswith("open") for line in shown) == 1


def test_wide_folds_nothing_and_leaves_the_console_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common.console, "width", 80)

    with common.width_for(Output.WIDE):
        assert common.console.width > 1_000
    assert common.console.width == 80


def test_another_group_whose_tasks_have_the_same_ids_is_a_finding() -> None:
    cluster = Cluster(Mode.ENABLED)
    name = next(iter(cluster.configs))
    seen = cluster.see(neighbours=(neighbour("other", "x"),)).observe()
    assert collisions(seen) == []
    head, _, rest = seen.group_id.partition("-")
    assert not rest, "the group of these tests has a plain name"
    colliding = replace(seen, group_id=f"{head}-b", neighbours=(neighbour(head, f"b-{name}"),))
    (found,) = collisions(colliding)
    assert f"connector {name} of group {head}-b" in found.found
    assert f"connector b-{name} of group {head}" in found.found


def neighbour(group_id: str, connector: str) -> WorkerGroup:
    """Another Connect group with one member that runs one connector."""
    assignment = Assignment(
        error=0, leader="m", leader_url="http://o1:8083/", config_offset=1, connectors=frozenset({connector})
    )
    member = Member("m", "connect", "/127.0.0.1", "http://o1:8083/", "o1:8083", assignment=assignment)
    return WorkerGroup(group_id, "Stable", "sessioned", members=(member,))
