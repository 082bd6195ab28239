"""The plan that removes what is left, and when it is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_eos_provider.changes.uninstall import remove
from airflow_eos_provider.changes.uninstall.remove import Item, Left, require_at_rest
from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.cluster.placement import MachineDescription, SystemdUnit
from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.process_start import ProcessStart
from airflow_eos_provider.journal.records import (
    ChangeRecord,
    RolloutState,
)
from airflow_eos_provider.rollout.hosts.choose import host_of
from airflow_eos_provider.rollout.hosts.service.restart_act import record_path
from airflow_eos_provider.rollout.hosts.worker_file import leftovers_of

NOW = 1_800_000_000.0
JOURNAL = Item("topic", "eos-rollout-g", "id-1", "history")
LEFT = Left("cluster", (Item("file", "/w/w1.properties.eos-backup"),), JOURNAL, True, (), ("files of w2",))


def change(state: RolloutState) -> ChangeRecord:
    return ChangeRecord("c1", "offsets reset", "orders", {"hash": "x"}, state, NOW)


def test_nothing_is_removed_while_a_change_is_not_finished() -> None:
    with pytest.raises(RefusedError, match="is not finished"):
        require_at_rest(JournalContent(changes={"c1": change(RolloutState.PAUSED)}), "uninstall")
    require_at_rest(JournalContent(changes={"c1": change(RolloutState.DONE)}), "uninstall")
    cut_off = replace(change(RolloutState.PAUSED), kind="uninstall", about="g")
    require_at_rest(JournalContent(changes={"c1": cut_off}), "uninstall")


def test_the_hash_is_of_what_is_removed_alone() -> None:
    assert replace(LEFT, not_seen=(), stays=(JOURNAL,)).content() == LEFT.content()
    for other in (replace(LEFT, removes=()), replace(LEFT, journal=replace(JOURNAL, id="id-2"))):
        assert other.content() != LEFT.content()


def test_a_journal_that_its_own_lease_has_made_is_no_other_plan() -> None:
    assert replace(LEFT, has_history=False).content() == replace(LEFT, journal=None).content() != LEFT.content()


def test_the_plan_says_what_goes_what_stays_and_what_was_not_seen() -> None:
    ledger = Item("topic", "eos-intervals-orders-offsets", "id-3", "it says which intervals are complete")
    assert list(replace(LEFT, stays=(ledger,)).lines()) == [
        "-file /w/w1.properties.eos-backup",
        "-topic eos-rollout-g (id id-1): history",
        " topic eos-intervals-orders-offsets (id id-3) stays: it says which intervals are complete",
        " not seen: files of w2",
    ]


@pytest.fixture
def worker(tmp_path: Path) -> WorkerDescription:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "w1.properties").touch()
    (tmp_path / "w1.properties").symlink_to(tmp_path / "real" / "w1.properties")
    return WorkerDescription("http://w1:8083", config=tmp_path / "w1.properties", pid_file=tmp_path / "w1.pid")


def test_files_beside_a_workers_own_are_found_and_no_others(worker: WorkerDescription, tmp_path: Path) -> None:
    assert list(leftovers_of(worker)) == []
    record = record_path(worker)
    assert record is not None
    record.parent.mkdir()
    ours = [
        tmp_path / "real" / "w1.properties.eos-backup",
        tmp_path / "real" / ".w1.properties.eos-new",
        tmp_path / "real" / ".w1.properties.eos-part",
        record.with_suffix(".claim.boot.1.2"),
        record,
    ]
    for path in [*ours, tmp_path / "w1.pid", record.with_name("w2.restart"), tmp_path / "w1.properties.bak"]:
        path.touch()
    assert list(leftovers_of(worker)) == ours


def test_a_restart_that_is_under_way_is_seen(worker: WorkerDescription) -> None:
    """Nothing is removed then."""
    record, me = record_path(worker), ProcessStart.of_this_process()
    assert record is not None
    record.parent.mkdir()
    for phase, seen in (("starting", "a restart of rollout r1 is starting"), ("done", None)):
        record.write_text(
            f"schema 1\nact a\nrollout r1\nreplaces \nsha256 c\nhelper {me.pid} {me.ticks} {me.boot}\nphase {phase}\n"
            "pid 0\nticks 0\nfailure \ncode \nlog_from 0\ndetail \nend\n"
        )
        assert host_of(worker).observe().restart == seen


def test_the_backup_on_another_machine_is_named_with_its_machine() -> None:
    worker = WorkerDescription(
        "http://w1:8083",
        config=Path("/etc/kafka/connect.properties"),
        machine=MachineDescription("connect-1"),
        service=SystemdUnit("kafka-connect.service"),
    )
    assert "connect-1" in remove._why_unseen(worker)
    assert "/etc/kafka/connect.properties.eos-backup" in remove._why_unseen(worker)
