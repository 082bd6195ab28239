"""A roll as the page shows it: a lane for each worker, the journal, and the history beside other changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.past import Past
from airflow_eos_provider.journal.records import (
    ChangeRecord,
    Event,
    Lease,
    Owner,
    RolloutRecord,
    RolloutState,
    Step,
    StepStatus,
)
from airflow_eos_provider.rollout.plan.order import TaskDowntime
from airflow_eos_provider.rollout.plan.roll_plan import ChangeKind, Plan, WorkerChange
from airflow_eos_provider.rollout.roll_history import Rollout, find_rollout
from airflow_eos_provider.ui.documents import Paging, keep_where
from airflow_eos_provider.ui.looks import Seen
from airflow_eos_provider.ui.routes.history import history_of
from airflow_eos_provider.ui.routes.rolls import in_short, roll_document

WORKERS = ("w1:8083", "w2:8083")


def plan() -> Plan:
    changes = tuple(
        WorkerChange(worker, ChangeKind.ROLL, "disabled", None, f"/etc/{worker}", "a" * 64, "b" * 64, "4.3.1")
        for worker in WORKERS
    )
    return Plan("connect", "cluster", Mode.PREPARING, changes, (TaskDowntime(WORKERS[0], 2, 3.0, 9.0, "it leads"),))


PASSED = Step(
    WORKERS[0],
    StepStatus.PASSED,
    30.0,
    restarted_after=10.0,
    seconds=20.0,
    task_downtime_seconds=4.25,
    tasks=("orders/0",),
    mode="preparing",
    evidence=("process: it is new", "group: stable"),
    conditions_after={"process": 6.5},
    announced_at_ms=10_000,
    appended_at_ms=30_000,
)
STEPS = (
    replace(PASSED, status=StepStatus.INTENT, at=10.0, appended_at_ms=10_000, evidence=()),
    replace(PASSED, status=StepStatus.RESTARTED, at=15.0, appended_at_ms=15_000, evidence=()),
    PASSED,
)


def content() -> JournalContent:
    record = RolloutRecord("r1", plan().to_dict(), {}, RolloutState.PAUSED, 9.0, actor="ada", reason="CHG-1")
    change = ChangeRecord("c1", "offsets reset", "orders", {"hash": "f" * 12}, RolloutState.DONE, 5.0, actor="bob")
    return JournalContent(
        rollouts={"r1": record},
        steps={"r1": {WORKERS[0]: PASSED}},
        events={"r1": (Event("r1", 9.5, "begun", "ada", note="sasl.password=lovelace1815"),)},
        changes={"c1": change},
    )


def roll() -> Rollout:
    return find_rollout(content(), None)


def seen(past: Past) -> Seen[Past]:
    return Seen(past, 40.0, 0.1, 2.0, None, is_looking=False)


def test_a_lane_has_what_happened_when_and_the_downtime_beside_its_prediction() -> None:
    document = roll_document(roll(), seen(Past(STEPS)), [])
    done, pending = document["lanes"]
    assert done["spans"] == [
        {"from": 10.0, "to": 15.0, "what": "restarting"},
        {"from": 15.0, "to": 30.0, "what": "gate"},
    ]
    assert moments_in(done) == [
        (10.0, "announced"),
        (None, "started"),  # as of a version that did not keep it
        (15.0, "restarted"),
        (30.0, "passed"),
    ]
    assert (done["restart_seconds"], done["gate_seconds"]) == (5.0, 15.0)
    assert (pending["restart_seconds"], pending["gate_seconds"]) == (None, None)
    assert (done["predicted"]["worst_seconds"], done["measured_downtime_seconds"]) == (9.0, 4.2)
    assert [(one["at"], one["text"]) for one in done["conditions"]] == [
        (16.5, "process: it is new"),
        (30.0, "group: stable"),  # as of a version that did not keep it: when the gate had passed
    ]
    assert (pending["worker"], pending["spans"], pending["moments"]) == (WORKERS[1], [], [])


def test_at_a_gate_each_further_condition_is_no_further_start_and_no_further_line() -> None:
    began, restarted, passed = STEPS
    one = replace(restarted, evidence=("process: it is new",), conditions_after={"process": 6.5}, appended_at_ms=17_000)
    document = roll_document(roll(), seen(Past((began, restarted, one, passed))), [])
    lane = document["lanes"][0]
    assert [(span["from"], span["to"]) for span in lane["spans"]] == [(10.0, 15.0), (15.0, 30.0)]
    assert [moment["what"] for moment in lane["moments"]] == ["announced", "started", "restarted", "passed"]
    assert [line["what"] for line in document["journal"]] == ["begun", "intent", "restarted", "passed"]


def test_what_has_failed_is_no_condition_that_holds() -> None:
    failed = replace(PASSED, status=StepStatus.RESTORED, evidence=("process: fail - it has ended",))
    content_of_failed = replace(content(), steps={"r1": {WORKERS[0]: failed}})
    lane = roll_document(find_rollout(content_of_failed, None), seen(Past((failed,))), [])["lanes"][0]
    assert lane["conditions"] == [{"at": None, "text": "process: fail - it has ended", "holds": False}]


def test_of_a_restart_under_way_the_last_span_has_no_end() -> None:
    document = roll_document(roll(), seen(Past(STEPS[:2])), [])
    lane = document["lanes"][0]
    assert lane["spans"][-1] == {"from": 15.0, "to": None, "what": "gate"}
    assert (lane["restart_seconds"], lane["gate_seconds"]) == (5.0, None)


INTENT = STEPS[0]
EARLIER = replace(INTENT, at=5.0, restarted_after=5.0, announced_at_ms=5_000, appended_at_ms=5_000)
STOPPED = replace(INTENT, replaces="token", stopped_after=2.0, appended_at_ms=12_100)
STARTED = replace(STOPPED, started_after=2.5, appended_at_ms=12_600)


def told(step: Step) -> Step:
    """With the moments of the restart."""
    return replace(step, replaces="token", stopped_after=2.0, started_after=2.5)


def moments_in(lane: Mapping[str, Any]) -> list[tuple[float | None, str]]:
    return [(one["at"], one["what"]) for one in lane["moments"]]


def test_a_lane_has_when_the_old_process_had_ended_and_when_the_new_one_was_started() -> None:
    steps = (INTENT, STOPPED, STARTED, *map(told, STEPS[1:]))
    document = roll_document(roll(), seen(Past(steps)), [])
    lane = document["lanes"][0]
    assert moments_in(lane) == [
        (10.0, "announced"),
        (12.0, "stopped"),
        (12.5, "started"),
        (15.0, "restarted"),
        (30.0, "passed"),
    ]
    assert [(span["from"], span["to"], span["what"]) for span in lane["spans"]] == [
        (10.0, 15.0, "restarting"),
        (15.0, 30.0, "gate"),
        (12.0, 12.5, "down"),
    ]
    assert (lane["restart_seconds"], lane["gate_seconds"]) == (5.0, 15.0)
    assert [line["what"] for line in document["journal"]] == ["begun", "intent", "restarted", "passed"]


def test_what_a_host_does_not_know_of_a_restart_is_shown_as_not_known() -> None:
    steps = tuple(replace(step, replaces="token") for step in STEPS)
    lane = roll_document(roll(), seen(Past(steps)), [])["lanes"][0]
    assert moments_in(lane)[:3] == [(10.0, "announced"), (None, "stopped"), (None, "started")]
    assert "down" not in [span["what"] for span in lane["spans"]]


def test_a_restart_that_is_taken_up_has_each_moment_once() -> None:
    """Its controller has ended after it noted the stop; the next one announces it again, and finds both moments."""
    again = replace(INTENT, at=20.0, restarted_after=20.0, announced_at_ms=20_000, appended_at_ms=20_000)
    found = replace(again, replaces="token", stopped_after=-7.9, started_after=-7.0, appended_at_ms=20_500)
    over = replace(found, status=StepStatus.RESTARTED, at=21.0, appended_at_ms=21_000)
    lane = roll_document(roll(), seen(Past((INTENT, STOPPED, again, found, over))), [])["lanes"][0]
    assert moments_in(lane) == [
        (10.0, "announced"),
        (12.0, "stopped"),
        (13.0, "started"),
        (20.0, "announced"),
        (21.0, "restarted"),
    ]


def test_a_worker_that_was_restored_has_the_moments_of_both_restarts() -> None:
    failed = replace(INTENT, status=StepStatus.FAILED, at=20.0, appended_at_ms=20_000, replaces="token")
    back = replace(failed, stopped_after=11.0, started_after=12.0, appended_at_ms=22_100)
    restored = replace(back, status=StepStatus.RESTORED, at=25.0, appended_at_ms=25_000)
    steps = (INTENT, STARTED, told(STEPS[1]), failed, back, restored)
    lane = roll_document(roll(), seen(Past(steps)), [])["lanes"][0]
    assert moments_in(lane) == [
        (10.0, "announced"),
        (12.0, "stopped"),
        (12.5, "started"),
        (15.0, "restarted"),
        (20.0, "failed"),
        (21.0, "stopped"),
        (22.0, "started"),
        (25.0, "restored"),
    ]


@pytest.mark.parametrize(
    ("steps", "is_live", "spans"),
    [
        ([INTENT], True, ["restarting"]),
        ([INTENT], False, ["announced"]),
        ([EARLIER, *STEPS], False, ["announced", "restarting", "gate"]),
        ([INTENT, STOPPED], False, ["restarting"]),
        ([INTENT, STOPPED], True, ["restarting", "down"]),
        ([INTENT, PASSED], False, ["announced"]),
        ([INTENT, replace(PASSED, status=StepStatus.RESTORED)], False, ["announced"]),
        ([INTENT, replace(PASSED, status=StepStatus.FAILED)], False, ["restarting", "restoring"]),
    ],
)
def test_a_worker_that_was_only_announced_is_not_drawn_as_restarting(
    steps: list[Step], is_live: bool, spans: list[str]
) -> None:
    """Its controller may have ended before it stopped the worker, which goes on then; or its file alone was changed."""
    lease = Lease(Owner.deferred_task("upgrade/run/roll"), "r1", "ada", "restart", 1.0) if is_live else None
    document = roll_document(replace(roll(), lease=lease), seen(Past(tuple(steps))), [])
    assert [span["what"] for span in document["lanes"][0]["spans"]] == spans


def test_what_compaction_has_left_is_shown_where_the_log_has_no_more() -> None:
    document = roll_document(roll(), seen(Past()), [])
    assert moments_in(document["lanes"][0]) == [(None, "started"), (30.0, "passed")]
    assert [line["kind"] for line in document["journal"]] == ["event", "step"]


def test_a_roll_has_its_plan_its_approval_and_no_secret() -> None:
    approval = {"by": "bob", "chosen": ["Approve"]}
    document = roll_document(roll(), seen(Past(STEPS)), [approval])
    assert document["plan"] == document["plan_document"]["hash"] == plan().hash
    assert document["approvals"] == [approval]
    assert (document["actor"], document["reason"], document["state"], document["live"]) == (
        "ada",
        "CHG-1",
        "paused",
        False,
    )
    assert "lovelace1815" not in str(document)
    assert (document["workers_done"], document["workers_to_roll"]) == (1, 2)


def test_in_short_it_has_no_workers() -> None:
    short = in_short(roll())
    assert (short["rollout_id"], short["to"], short["workers_done"]) == ("r1", "preparing", 1)
    assert "workers" not in short


def test_the_history_has_rolls_and_changes_the_newest_first() -> None:
    page = history_of(content()).page(Paging())
    assert [(item["kind"], item["actor"], item["at"]) for item in page["items"]] == [
        ("roll", "ada", 9.0),
        ("offsets reset", "bob", 5.0),
    ]
    assert page["items"][0]["seen"][1] == f"{WORKERS[0]}: group: stable"
    assert history_of(content()).page(Paging("bob orders"))["found"] == 1
    assert history_of(content()).page(Paging(), keep_where(kind="roll"))["found"] == 1
