from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.properties import parse
from airflow_eos_provider.lab import servers
from airflow_eos_provider.lab.servers.broker import Broker
from airflow_eos_provider.lab.servers.connect_worker import Worker
from airflow_eos_provider.lab.servers.part import write_properties


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(folder=tmp_path, number=2, port=8083, class_path="/jars/*", marker="-Deos.lab=t:/f")


def properties(worker: Worker, mode: Mode = Mode.ENABLED, session_timeout_ms: int | None = None) -> dict[str, str]:
    return worker.properties(
        bootstrap_servers="127.0.0.1:9092",
        group_id="g",
        mode=mode,
        rebalance_delay_ms=1234,
        session_timeout_ms=session_timeout_ms,
    )


def test_the_file_says_the_mode_that_was_asked_for(worker: Worker) -> None:
    write_properties(worker.config, properties(worker, Mode.PREPARING))
    assert worker.mode_in_file() is Mode.PREPARING
    assert parse(worker.config.read_bytes()) == properties(worker, Mode.PREPARING)


def test_a_file_without_the_property_means_disabled_and_no_file_means_nothing(worker: Worker) -> None:
    assert worker.mode_in_file() is None
    worker.config.write_text("group.id=g\n")
    assert worker.mode_in_file() is Mode.DISABLED
    worker.config.write_text("exactly.once.source.support=perhaps\n")
    assert worker.mode_in_file() is None


def test_the_session_timeout_is_connects_own_unless_asked_for(worker: Worker) -> None:
    assert "session.timeout.ms" not in properties(worker)
    asked = properties(worker, session_timeout_ms=6000)
    assert (asked["session.timeout.ms"], asked["heartbeat.interval.ms"]) == ("6000", "300")


def test_the_cluster_file_starts_a_worker_by_the_very_command_that_the_lab_does(worker: Worker) -> None:
    described = worker.description()
    assert described["start"] == worker.start_command
    assert worker.marker in worker.start_command


@pytest.mark.parametrize(
    ("version", "option"),
    [("3.9.2", "-Dlog4j.configuration=file:"), ("4.3.1", "-Dlog4j2.configurationFile=file:")],
)
def test_each_version_is_told_how_to_log_in_its_own_way(worker: Worker, version: str, option: str) -> None:
    older = replace(worker, version=version)
    assert any(argument.startswith(option) for argument in older.start_command)
    assert Path(str(servers.__file__)).with_name(older.log_config.name).exists()


def test_a_lab_in_preparing_is_as_a_roll_leaves_it(worker: Worker) -> None:
    assert properties(worker, Mode.PREPARING)["isolation.level"] == "read_committed"
    assert "isolation.level" not in properties(worker, Mode.DISABLED) | properties(worker, Mode.ENABLED)


def test_a_folder_with_foreign_letters_survives_the_properties_file(tmp_path: Path) -> None:
    folder = tmp_path / "Ladе=ø"
    broker = Broker(folder, "c", 1, 2, "/jars/*", "-Deos.lab=t:/f")
    write_properties(tmp_path / "broker.properties", broker.properties())
    assert parse((tmp_path / "broker.properties").read_bytes())["log.dirs"] == str(folder / "data" / "broker")
