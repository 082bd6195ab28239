"""Tasks that fail for real, and what is said of them: Connect's own words for the two are the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from airflow_eos_provider.cli.app import app
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.connect.task_failures import TIMEOUT_REMEDIES, FailureKind
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.lab.servers.broker import Broker
from airflow_eos_provider.rollout.drift.contradictions import findings
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.observe.observer import Observer
from tests.waiting import status_of, wait_for

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"

#: Connect blames this on both.
MISLEADING = "was unable to finish writing records to Kafka before its producer transaction expired"


#: The connector of which the transaction times out.
SLOW = "slow"


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[[LabOptions], Lab]) -> Lab:
    """One worker, and the connector whose transaction times out: the broker looks for those twice a second.

    The broker allows no transaction of the 90 s that Connect asks for when it fences.
    """
    settings = {
        "transaction.max.timeout.ms": "80000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    options = LabOptions(name="failures", workers=1, mode=Mode.ENABLED, session_timeout_ms=6000, test_connectors=True)
    plain = Broker.properties
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Broker, "properties", lambda broker: {**plain(broker), **settings})
        lab = lab_factory(options)
    create(
        lab,
        SLOW,
        **{
            "transaction.boundary": "interval",
            "transaction.boundary.interval.ms": "6000",
            "producer.override.transaction.timeout.ms": "2000",
        },
    )
    return lab


@pytest.fixture(scope="module")
def observer(lab: Lab) -> Iterator[Observer]:
    with Observer(lab.cluster()) as found:
        yield found


def append(lab: Lab, name: str) -> None:
    with (lab.data_dir / f"{name}.txt").open("a", encoding="utf-8") as file:
        file.write(f"line {time.time()}\n")


def create(lab: Lab, name: str, **config: str) -> None:
    lab.create_topic(name, 1)
    append(lab, name)
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        file = str(lab.data_dir / f"{name}.txt")
        rest.create(name, {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": name, "file": file, **config})


def state(lab: Lab, name: str) -> str | None:
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        status = rest.statuses().get(name)
    return status.tasks[0].state if status and status.tasks else None


def writes_until_it_fails(lab: Lab, name: str, seconds: float) -> None:
    def failed() -> bool:
        append(lab, name)
        return state(lab, name) == "FAILED"

    wait_for(f"{name} fails", failed, seconds)


def kind_of(observation: Observation, name: str) -> FailureKind:
    assert observation.statuses is not None
    (task,) = observation.statuses[name].tasks
    assert MISLEADING in (task.trace or ""), "Connect says something else by now"
    return observation.failure_of(name, task.number).kind


def reported(observation: Observation, name: str) -> tuple[str, str]:
    ((what, remedy),) = [(f.found, f.remedy) for f in findings(observation) if f"connector {name} " in f.found]
    return what, remedy


def test_a_task_that_another_producer_fenced_is_called_fenced_and_one_restart_heals_it(
    lab: Lab, observer: Observer
) -> None:
    name = "fenced"
    create(lab, name)
    wait_for("its first line is committed", lambda: bool(read_to_end(lab.cluster().kafka, name).records))
    thief = Producer({"bootstrap.servers": lab.bootstrap_servers, "transactional.id": f"{lab.group_id}-{name}-0"})
    thief.init_transactions(180)
    writes_until_it_fails(lab, name, 180)
    observation = observer.observe()
    assert kind_of(observation, name) is FailureKind.FENCED
    what, remedy = reported(observation, name)
    assert what.startswith(f"connector {name} has FAILED task 0: fenced (another producer has taken")
    assert "find who else uses its transactional id" in remedy
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        rest.restart(name, include_tasks=True, only_failed=True)
    wait_for("it runs again", lambda: state(lab, name) == "RUNNING")


def test_a_task_whose_transaction_timed_out_is_called_so_with_the_four_remedies(lab: Lab, observer: Observer) -> None:
    """A limit of two seconds for transactions of six."""
    writes_until_it_fails(lab, SLOW, 240)
    observation = observer.observe()
    assert kind_of(observation, SLOW) is FailureKind.TIMED_OUT
    what, remedy = reported(observation, SLOW)
    assert what.startswith(f"connector {SLOW} has FAILED task 0: transaction timed out")
    assert all(words in remedy for words in TIMEOUT_REMEDIES)


def test_tasks_whose_round_of_fencing_the_broker_refuses_are_called_so(lab: Lab, observer: Observer) -> None:
    name = "several"
    lab.create_topic(name, 1)
    config = {
        "connector.class": "org.apache.kafka.connect.integration.TestableSourceConnector",
        "topic": name,
        "throughput": "5",
        "messages.per.poll": "5",
    }
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:

        def states() -> list[str]:
            return [task.state for task in status_of(rest, name).tasks]

        rest.create(name, {**config, "tasks.max": "2"})
        wait_for("two tasks run", lambda: states() == ["RUNNING"] * 2)
        rest.put_config(name, {**config, "tasks.max": "3"})
        wait_for("three tasks fail", lambda: states() == ["FAILED"] * 3)
        what, remedy = reported(observer.observe(), name)
        assert what.startswith(f"connector {name} has FAILED tasks 0, 1, 2: zombie fencing failed")
        assert "InvalidTxnTimeoutException" in what
        assert "transaction.max.timeout.ms is below 90 s" in remedy
        rest.delete(name)


def test_a_trace_that_holds_secrets_is_shown_and_kept_without_them(lab: Lab, observer: Observer) -> None:
    """A transformation that fails quotes the record it failed at, which repeats a password; so do many drivers."""
    known, unknown = "c4n4ry-by-value-1", "c4n4ry-by-shape-2"
    lab.create_topic("leaky", 1)
    file = lab.data_dir / "leaky.txt"
    file.write_text(f"no login for me with {known}, tried jdbc:postgresql://db/x?password={unknown}\n")
    config = {
        "connector.class": FILE_SOURCE,
        "tasks.max": "1",
        "topic": "leaky",
        "file": str(file),
        "database.password": known,
        "transforms": "cast",
        "transforms.cast.type": "org.apache.kafka.connect.transforms.Cast$Value",
        "transforms.cast.spec": "int32",
    }
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        rest.create("leaky", config)
    wait_for("leaky fails", lambda: state(lab, "leaky") == "FAILED")
    raw = httpx.get(f"{lab.connect_urls[0]}/connectors/leaky/status", trust_env=False, timeout=180).text
    assert known in raw
    assert unknown in raw
    observation = observer.observe()
    assert observation.statuses is not None
    trace = observation.statuses["leaky"].tasks[0].trace or ""
    assert "no login for me with ***, tried jdbc:postgresql://db/x?password=***" in trace
    what, _ = reported(observation, "leaky")
    assert "FAILED" in what
    for arguments in (["status"], ["status", "--json"], ["plan", "--to", "preparing", "--allow-downtime"], ["drift"]):
        shown = CliRunner().invoke(app, [*arguments, "--cluster", str(lab.cluster_file)])
        said = f"{shown.output}{shown.exception or ''}"  # a refusal is an exception here, and printed by ``eos``
        assert said, arguments
        assert "leaky" in said or arguments[0] != "status"
        assert "c4n4ry" not in said, arguments
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        rest.delete("leaky")
