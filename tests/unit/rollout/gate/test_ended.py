"""A worker that ends in mid-roll and not by the roll: it is named at once, with how it is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.rollout.gate.conditions import rest
from airflow_eos_provider.rollout.gate.expectation import ended_elsewhere, reported_changes
from airflow_eos_provider.rollout.hosts.launch import how_to_start

W1, W2, W3 = "w1:8083", "w2:8083", "w3:8083"


def seen(gate: Any) -> Any:
    return gate.expected(), gate.cluster.observe()


def test_another_worker_that_has_ended_is_named_with_its_start_command(gate: Any) -> None:
    gate.cluster.kill(W3)
    check = rest(*seen(gate))
    assert check.verdict is Verdict.INCONCLUSIVE
    assert not check.decisive, "it may be started, and the gate go on"
    assert check.found == f"{W3} has ended, and not by this roll"
    assert f"start {W3}: connect /etc/connect/w3.properties" in (check.remedy or "")
    assert set(ended_elsewhere(*seen(gate))) == {W3}


def test_the_worker_whose_gate_it_is_and_one_that_was_stopped_before_have_not_ended_elsewhere(gate: Any) -> None:
    gate.cluster.kill(W2)
    assert ended_elsewhere(*seen(gate)) == {}
    expected = gate.expected()
    gate.cluster.kill(W3)
    without = replace(expected, members=expected.members - {W3})
    assert ended_elsewhere(without, gate.cluster.observe()) == {}


def test_a_worker_whose_process_is_not_known_has_not_ended(gate: Any) -> None:
    facts = gate.cluster.workers[W3].facts
    gate.cluster.facts(W3, is_running=False, running=replace(facts.running, alive=None))
    assert ended_elsewhere(*seen(gate)) == {}


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ({}, "start w3:8083 in the usual way"),
        (
            {
                "start": ("java", "-Dssl.key.password=CANARY", "--token", "CANARY", "my file.properties"),
                "cwd": Path("/opt/kafka"),
                "env": {"KAFKA_OPTS": "CANARY"},
                "pid_file": Path("/run/w3.pid"),
                "log": Path("/var/log/w3.log"),
            },
            "start w3:8083: cd /opt/kafka && java '-Dssl.key.password=***' --token '***' 'my file.properties', with "
            "the variables that its description sets (KAFKA_OPTS), and its pid in /run/w3.pid, its log /var/log/w3.log "
            "may say why it ended",
        ),
    ],
)
def test_how_a_worker_is_started_is_read_from_its_description_without_its_secrets(
    description: dict[str, Any], words: str
) -> None:
    assert how_to_start(WorkerDescription("http://w3:8083", **description)) == words


def test_it_is_said_once_when_a_worker_has_ended_and_once_when_it_is_back(gate: Any) -> None:
    before: set[str] = set()

    def look() -> list[str]:
        ended = ended_elsewhere(*seen(gate))
        changes = list(reported_changes(before, ended))
        before.clear()
        before.update(ended)
        return changes

    assert look() == []
    gate.cluster.kill(W3)
    (line,) = look()
    assert line.startswith(f"{W3} has ended, and not by this roll. The roll waits for it: start {W3}: connect ")
    assert look() == []
    gate.cluster.start(W3, at=gate.cluster.at)
    assert look() == [f"{W3} runs again; the roll continues when it is a healthy member."]
    assert look() == []
