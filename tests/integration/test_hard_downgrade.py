"""Kafka Connect 3.2.3 takes over from enabled workers in one step, under load; and the way up again.

The second step of the way in two is in ``test_downgrade.py``. What an older worker does not know is seen here as it is,
so that docs/connect/downgrade.md says what is true.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.connect.topics.internal_topics import OWN_TOPIC
from airflow_eos_provider.demo.oracle import compare, drain, expected_from_file
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.rollout.observe.observer import Observer
from tests.integration.older_worker import BEFORE_KIP_618, replace_by_older
from tests.waiting import answered, status_of, until

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"

#: Connectors that run and have nothing to do: with them the group gives each worker a task that runs.
IDLE = ("idle-a", "idle-b")
RUNNING = ("plain", "owned", *IDLE)

#: A connector that comes when the enabled worker has returned: a leader of 3.2.3 may move no older task there.
LATE = "late"

#: Of the connector that rests meanwhile: lines delivered, lines in its file, and where the aborted offset points.
DELIVERED, WRITTEN, SKIPPED_TO = 10, 20, 15

#: What has not come by then does not come, seconds.
SECONDS = 60.0


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[[LabOptions], Lab]) -> Lab:
    return lab_factory(
        LabOptions(name="hard", workers=2, mode=Mode.ENABLED, rebalance_delay_ms=500, session_timeout_ms=6000)
    )


def rest_of(lab: Lab) -> ConnectRest:
    return ConnectRest(lab.connect_urls[0], retry_seconds=180)


def tasks(lab: Lab, connector: str) -> list[tuple[str, str, str]]:
    """State, worker and trace of each task."""
    with rest_of(lab) as rest:
        status = rest.statuses().get(connector)
    return [(task.state, task.worker_id, task.trace or "") for task in status.tasks] if status else []


def idle(lab: Lab, name: str) -> dict[str, str]:
    """A connector whose file is never made."""
    return {"connector.class": FILE_SOURCE, "topic": "idle", "file": str(lab.data_dir / name)}


def text_of(numbers: range) -> str:
    return "".join(f'{{"line":{number}}}\n' for number in numbers)


def rest_behind_an_abort(lab: Lab, name: str) -> Path:
    """A paused connector with more lines to read, and an aborted offset behind some of them on the global topic."""
    file, topic = lab.data_dir / f"{name}.txt", f"{lab.group_id}-offsets"
    file.write_text(text_of(range(DELIVERED)), encoding="utf-8")
    lab.create_topic(name)

    def key() -> tuple[bytes, int] | None:
        found = read_to_end(lab.cluster().kafka, topic).records
        return next(((r.key, r.partition) for r in found if r.key and r.key.startswith(f'["{name}"'.encode())), None)

    with rest_of(lab) as rest:
        config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": name, "file": str(file)}
        rest.create(name, config)
        until(lambda: key() is not None, "its first offset is committed", seconds=SECONDS)
        rest.pause(name)
        until(lambda: [state for state, _, _ in tasks(lab, name)] == ["PAUSED"], "it pauses", seconds=SECONDS)
    with file.open("a", encoding="utf-8") as out:
        out.write(text_of(range(DELIVERED, WRITTEN)))
    raw, partition = key() or (b"", 0)
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "transactional.id": f"dead-{name}"})
    producer.init_transactions(180)
    producer.begin_transaction()
    value = json.dumps({"position": len(text_of(range(SKIPPED_TO)))}).encode()
    producer.produce(topic, key=raw, value=value, partition=partition)
    assert producer.flush(180) == 0
    producer.abort_transaction(180)
    return file


def fail_ahead(lab: Lab, name: str) -> Path:
    """A connector with an own topic whose task has failed: the broker took its offset, and not its records.

    Connect has written the copy of that offset to the global topic before the commit that never came.
    """
    file, topics = lab.data_dir / f"{name}.txt", Topics(lab.cluster().kafka)
    file.write_text(text_of(range(DELIVERED)), encoding="utf-8")
    lab.create_topic(name)
    # In one request the records and their offset are sent; the broker refuses the records alone.
    config = {"connector.class": FILE_SOURCE, "topic": name, "file": str(file), "producer.override.linger.ms": "1000"}
    with rest_of(lab) as rest:
        rest.create(name, {**config, OWN_TOPIC: f"{name}-offsets"})
        until(lambda: len(_lines(lab, name)) == DELIVERED, "its first lines come", seconds=SECONDS)
        topics.change(name, {"max.message.bytes": "10"})
        topics.await_settings(name, {"max.message.bytes": "10"})
        with file.open("a", encoding="utf-8") as out:
            out.write(text_of(range(DELIVERED, WRITTEN)))
        until(lambda: [state for state, _, _ in tasks(lab, name)] == ["FAILED"], "it fails", seconds=SECONDS)
    topics.change(name, {"max.message.bytes": "1048588"})
    assert len(_lines(lab, name)) == DELIVERED
    return file


def test_in_one_step_and_up_again(
    lab: Lab, eos_of: Callable[[Lab, Path], Any], load_on: Callable[..., Any], tmp_path: Path
) -> None:
    eos = eos_of(lab, tmp_path)
    check = ("preflight", "--to-version", BEFORE_KIP_618)
    with ExitStack() as stack:
        plain = stack.enter_context(load_on(lab, "plain"))
        owned = stack.enter_context(load_on(lab, "owned", {OWN_TOPIC: "owned-offsets"}))
        resting, ahead = rest_behind_an_abort(lab, "resting"), fail_ahead(lab, "ahead")
        with rest_of(lab) as rest:
            for name in IDLE:
                rest.create(name, idle(lab, name))
            rest.create("ended", {"connector.class": FILE_SOURCE, "topic": "ended", "file": str(resting)}, "STOPPED")
        for name in IDLE:
            until(lambda name=name: [s for s, _, _ in tasks(lab, name)] == ["RUNNING"], f"{name} runs", seconds=SECONDS)

        # Before: refused, since the workers' files lack the line.
        before = json.loads(eos.run(*check, "--json", expect=1).stdout)
        effects = {(one["kind"], one["subject"]) for one in before["findings"]}
        ids = [worker.url.removeprefix("http://") for worker in lab.workers]
        assert {("loses records", worker) for worker in ids} <= effects
        assert {("delivers again", "owned"), ("changes", "ended"), ("changes", "config topic")} <= effects
        (fails,) = [one for one in before["findings"] if one["kind"] == "tasks fail"]
        assert all(f"{name}-0" in fails["found"] for name in (*RUNNING, "resting"))
        not_committed, copy = before["copies"]
        assert (copy["connector"], copy["own_topic"], copy["read_own"]) == ("owned", "owned-offsets", 1)
        assert (copy["missing"], copy["further"], copy["left"]) == (0, 0, 0)
        assert ("loses records", "ahead") in effects
        assert (not_committed["connector"], not_committed["ahead"], not_committed["left"]) == ("ahead", 1, 0)

        # One step: the older worker leads as soon as the enabled one stops, and has no fencing endpoint.
        replace_by_older(lab, 0)
        lab.stop_worker(1)
        observer = Observer(lab.cluster())
        until(lambda: observer.observe().leader_id == ids[0], "the older worker leads", seconds=SECONDS)
        lab.start_worker(1)
        with rest_of(lab) as rest:
            rest.create(LATE, idle(lab, LATE))
        until(
            lambda: bool(_failed_for_want_of_the_endpoint(lab, ids[1])),
            "a task of the enabled worker fails",
            seconds=SECONDS,
        )
        failed = _failed_for_want_of_the_endpoint(lab, ids[1])
        shown = eos.run(*check, expect=1).stdout
        for name in failed:
            assert f"{lab.connect_urls[0]}/connectors/{name}/restart?includeTasks=true" in shown
        assert "has FAILED because the fencing endpoint does not exist" in shown

        replace_by_older(lab, 1)
        with rest_of(lab) as rest:
            for name in (*RUNNING, LATE):
                answered(partial(rest.restart, name, include_tasks=True))
        for name in (*RUNNING, LATE):
            until(lambda name=name: [s for s, _, _ in tasks(lab, name)] == ["RUNNING"], f"{name} runs", seconds=SECONDS)
        assert plain.compared().nothing_missing
        assert owned.compared().nothing_missing

    # Behind a copy of what was never committed, 3.2.3 skips it.
    with ahead.open("a", encoding="utf-8") as out:
        out.write(text_of(range(WRITTEN, WRITTEN + 1)))
    with rest_of(lab) as rest:
        rest.restart("ahead", include_tasks=True)
    until(lambda: WRITTEN in _lines(lab, "ahead"), "its last line comes", seconds=SECONDS)
    assert set(range(WRITTEN)) - _lines(lab, "ahead") == set(range(DELIVERED, WRITTEN))

    # The trap, on 3.2.3 as on 4.3.1.
    with rest_of(lab) as rest:
        # It was STOPPED, which 3.2.3 does not know.
        until(lambda: status_of(rest, "ended").state == "PAUSED", "the state that it takes for it", seconds=SECONDS)
        rest.resume("resting")
        rest.restart("resting", include_tasks=True)
    until(
        lambda: _lines(lab, "resting") and max(_lines(lab, "resting")) == WRITTEN - 1,
        "its last line comes",
        seconds=SECONDS,
    )
    assert set(range(WRITTEN)) - _lines(lab, "resting") == set(range(DELIVERED, SKIPPED_TO))
    assert "Discarding config update record with invalid key: tasks-fencing-" in lab.workers[0].log.read_text("utf-8")

    # Before the way up: the own topic is left behind, said in the list and beside the refused plan.
    assert "its own offsets topic owned-offsets is older" in eos.run("offsets", "list").stdout.replace("\n", " ")
    refused = eos.run("plan", "--to", "preparing", expect=3).stderr
    assert "eos offsets drop-own owned" in refused
    assert "runs Kafka Connect 3.2.3" in refused
    topics = Topics(lab.cluster().kafka)
    plan = json.loads(eos.run("offsets", "drop-own", "owned", "--json", expect=3).stdout)["plan"]
    assert topics.is_there("owned-offsets"), "a plan deletes nothing"
    done = json.loads(eos.run("offsets", "drop-own", "owned", "--plan", plan["hash"], "--json").stdout)
    assert done["report"]["deleted"]
    (change,) = json.loads(eos.run("changes", "list", "--json").stdout)
    assert change["done"] == ["configure", "delete"], "between the two its tasks begin anew"
    assert not topics.describe(["owned-offsets"])

    copies_before = {load.topic: _compared(lab, load).duplicates for load in (plain, owned)}
    for index in range(2):
        lab.stop_worker(index)
    lab.start_worker(0)
    for load in (plain, owned):
        with load.file.open("a", encoding="utf-8") as out:
            out.write(f'{{"line":{load.written}}}\n')
        until(lambda load=load: load.delivered() == load.written + 1, "it goes on", seconds=SECONDS)
        seen = _compared(lab, load)
        assert seen.nothing_missing
        assert seen.duplicates == copies_before[load.topic], "nothing comes twice on the way up"


def _failed_for_want_of_the_endpoint(lab: Lab, worker: str) -> list[str]:
    found = {name: tasks(lab, name) for name in (*RUNNING, LATE)}
    return [
        name
        for name, of_one in found.items()
        if any(s == "FAILED" and w == worker and "404" in t and "fenceZombie" in t for s, w, t in of_one)
    ]


def _lines(lab: Lab, topic: str) -> set[int]:
    return {json.loads(value)["line"] for value in drain(lab.cluster().kafka, topic).copies if value}


def _compared(lab: Lab, load: Any) -> Any:
    return compare(expected_from_file(load.file), drain(lab.cluster().kafka, load.topic))
