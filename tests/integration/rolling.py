"""Two workers to be rolled, with a file source of which each line is delivered; and what the rolls wait for."""

from __future__ import annotations

import re
from collections.abc import Callable

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.observe.observer import Observer
from tests.integration.offsets_cluster import FILE_SOURCE
from tests.waiting import wait_for


def rolling_lab(lab_factory: Callable[..., Lab], name: str, mode: Mode) -> Lab:
    """Two workers with next to no rebalance delay, and a file source that has three hundred lines to deliver."""
    lab = lab_factory(LabOptions(name=name, workers=2, mode=mode, rebalance_delay_ms=500, session_timeout_ms=6000))
    lab.create_topic("lines", 1)
    append(lab, 300)
    with ConnectRest(lab.connect_urls[0]) as rest:
        config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": "lines"}
        rest.create("lines", {**config, "file": str(lab.data_dir / "lines.txt")})
    return lab


def append(lab: Lab, count: int = 100) -> str:
    """So many more lines in the file; the last of them."""
    first = len(_written(lab))
    lines = [f"line {number}" for number in range(first, first + count)]
    with (lab.data_dir / "lines.txt").open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    return lines[-1]


def _written(lab: Lab) -> list[str]:
    file = lab.data_dir / "lines.txt"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def delivered(lab: Lab) -> set[str]:
    """The different lines that readers of committed records get (Connect writes each as a JSON string with schema)."""
    records = read_to_end(lab.cluster().kafka, "lines").records
    return {re.sub(r'.*"(line \d+)".*', r"\1", (record.value or b"").decode()) for record in records}


def assert_every_line_is_delivered(lab: Lab) -> None:
    written = set(_written(lab))
    wait_for("every line is delivered", lambda: delivered(lab) >= written)
    assert delivered(lab) == written


def once_whole(lab: Lab) -> Observation:
    """The group as soon as every listed worker is a healthy member in a known mode again, and it has a leader."""
    seen: list[Observation] = []

    def is_whole() -> bool:
        seen[:] = [Observer(lab.cluster()).observe()]
        known = all(w.is_healthy and w.worker_id in seen[0].members and w.mode.verdict.mode for w in seen[0].workers)
        return bool(seen[0].leader_id and known)

    wait_for("the group is whole", is_whole)
    return seen[0]
