"""What ``eos fence`` prints of a look and its plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_eos_provider.cli import fence
from airflow_eos_provider.cli.fence import apply_command, show
from airflow_eos_provider.connect.rest import TaskStatus
from airflow_eos_provider.connect.topics.config_topic import ConnectorConfigState, TaskCountRecord, TaskSet
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription
from airflow_eos_provider.offsets.fencing.documents import fence_document
from airflow_eos_provider.offsets.fencing.look import ConnectorLook, FenceId, FenceLook
from airflow_eos_provider.offsets.fencing.plan import decide
from airflow_eos_provider.terminal import DataConsole

IDS = 12


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence, "console", DataConsole(width=160))


def look(*, enabled: bool = True) -> FenceLook:
    """A connector of twelve tasks, of which the sixth holds a transaction open and has failed."""
    ids = tuple(
        FenceId(
            f"g-c-{n}",
            n,
            TransactionDescription(
                f"g-c-{n}",
                TransactionState.ONGOING if n == 5 else TransactionState.EMPTY,
                100 + n,
                3,
                60_000,
                40_000 if n == 5 else None,
                (("t", 1), ("o", 2)) if n == 5 else (),
            ),
            held=n == 5,
        )
        for n in range(IDS)
    )
    state = ConnectorConfigState(
        "c", {"password": "c4n4ry"}, 1, "STARTED", TaskSet(IDS, 4, {}), 4, TaskCountRecord(IDS, 5)
    )
    tasks = tuple(TaskStatus(n, "FAILED" if n == 5 else "RUNNING", "w:1") for n in range(IDS))
    return FenceLook(82.0, "g", "k", {"w:1": enabled}, (ConnectorLook(state, ids, tasks),))


@pytest.mark.parametrize("wide", [False, True])
def test_the_id_that_is_held_is_shown_and_on_request_every_other(
    capsys: pytest.CaptureFixture[str], wide: bool
) -> None:
    seen = look()
    decision = decide(seen)
    show(seen, decision, apply_command(["c"], Path("x y.yaml"), decision.plan, pending=False), wide=wide)
    printed = capsys.readouterr().out
    assert "no round is pending, but id 5 has a transaction open" in printed
    assert ("g-c-4 " in printed) is wide
    for words in ("g-c-5", "105/3", "42 of 60 s", "t-1", "fence id 5", "restart task 5", "Nothing is changed yet"):
        assert words in printed
    assert f"eos fence c --hash {decision.plan.short_hash} --cluster 'x y.yaml'" in printed


def test_workers_below_enabled_have_nothing_to_fence_and_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    seen = look(enabled=False)
    show(seen, decide(seen), "", wide=False)
    assert "no transactional ids. Nothing to do." in capsys.readouterr().out


def test_the_document_has_every_id_and_no_configuration() -> None:
    seen = look()
    document = fence_document(seen, decide(seen))
    (one,) = document["connectors"]
    assert [each["task"] for each in one["ids"] if each["held"]] == [5]
    assert len(one["ids"]) == IDS
    assert (one["fence"], one["restart"], one["running"]) == ([5], [5], [])
    assert document["hash"] == decide(seen).plan.hash
    assert "c4n4ry" not in str(document)
