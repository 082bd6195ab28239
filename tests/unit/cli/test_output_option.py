"""``-o`` of the commands that show one thing: the JSON of ``--json``, YAML, names, more of it; the exit code stays."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import yaml
from typer.testing import CliRunner, Result

from airflow_eos_provider.cli.app import app
from airflow_eos_provider.cli.exactly_once import intervals
from airflow_eos_provider.cli.rollout import drift
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.topics.source_offsets import OffsetKey, OffsetRecord
from airflow_eos_provider.finding import Finding, Verdict
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.verify import RunStatus, Verification
from airflow_eos_provider.lab import lab_command as lab_command
from airflow_eos_provider.lab.lab_status import LabStatus, ProcessStatus
from airflow_eos_provider.offsets.seen.backup import BackedUpTopic, Backup, write
from airflow_eos_provider.offsets.seen.difference import difference
from airflow_eos_provider.rollout.drift.drift import Drift, DriftKind, Expected

RUN = Run.parse("orders@2026-01-01T05:00:00Z/2026-01-02T05:00:00Z")


class Case(NamedTuple):
    """A command, and what it has to print.

    :param document: of ``--json``.
    :param indent: of its JSON; None for one line.
    """

    arguments: list[str]
    document: Any
    names: list[str]
    code: int
    indent: int | None = 2


Patch = pytest.MonkeyPatch


def a_drift(patch: Patch, folder: Path) -> Case:
    kinds = ((DriftKind.EDITED_FILE, "w1:8083, w2:8083"), (DriftKind.MISSING_WORKER, "w2:8083"), (DriftKind.MODE, ""))
    findings = tuple(Finding(subject, Verdict.FAIL, "it is so", remedy="mend it", kind=kind) for kind, subject in kinds)
    found = Drift(1.0, "g", findings, expected=Expected(modes=frozenset({Mode.ENABLED})))
    patch.setattr(drift, "load_cluster", lambda _: None)
    patch.setattr(drift, "DriftWatch", lambda *_, **__: nullcontext(SimpleNamespace(look=lambda: found)))
    return Case(["drift", "--exit-code"], found.to_dict(), ["w1:8083", "w2:8083", "g"], 1)


def a_run(patch: Patch, folder: Path) -> Case:
    found = RunStatus(RUN, False, 30, done=(0,), source={"files": ["a", "b"]})
    patch.setattr(intervals, "load_kafka", lambda _: None)
    patch.setattr(intervals, "status", lambda *_: found)
    return Case(["intervals", "show", RUN.name], found.to_dict(), [RUN.name], 0)


def a_verification(patch: Patch, folder: Path) -> Case:
    found = Verification(RUN.name, ("orders",), 2, "d", 3, "e")
    patch.setattr(intervals, "load_kafka", lambda _: None)
    patch.setattr(intervals, "verify_run", lambda *_, **__: found)
    arguments = ["intervals", "verify", RUN.name, "--topic", "orders", "--header", "eos-run"]
    return Case(arguments, found.to_dict(), [RUN.name], 1)


def a_verification_of_all(patch: Patch, folder: Path) -> Case:
    found = Verification("all 3 runs of orders", ("orders",), 2, "d", 2, "d")
    patch.setattr(intervals, "load_kafka", lambda _: None)
    patch.setattr(intervals, "verify_all", lambda *_, **__: found)
    return Case(["intervals", "verify", "-p", "orders", "--topic", "orders"], found.to_dict(), ["orders"], 0)


def two_backups(patch: Patch, folder: Path) -> Case:
    keys = (b'["c",{"file":"a"}]', b'["c",{"file":"b"}]')
    first = [OffsetRecord(OffsetKey(key), "g-offsets", 3, 17, 1_700_000_000_000, b'{"position":1}') for key in keys]
    second = [replace(first[0], value=b'{"position":2}')]
    backups = []
    for name, records in (("before", first), ("after", second)):
        topics = (BackedUpTopic("g-offsets", "AAA", {3: 18}),)
        backups.append(Backup("cluster", "g", 1_700_000_000.0, None, topics, tuple(records)))
        write(backups[-1], folder / name)
    documents = [one.to_dict() for one in difference(*backups)]
    arguments = ["offsets", "diff", str(folder / "before"), str(folder / "after")]
    return Case(arguments, documents, [key.decode() for key in keys], 1)


def a_lab(patch: Patch, folder: Path) -> Case:
    log = folder / "a folder with a long name" / "another one" / "worker.log"
    worker = ProcessStatus("w1", 7, True, "http://127.0.0.1:1", Mode.PREPARING, log)
    broker = ProcessStatus("broker", None, False, "127.0.0.1:2", None, log)
    found = LabStatus("x", folder, "127.0.0.1:2", "g", (broker, worker), (9,))
    patch.setattr(lab_command.Lab, "load", lambda _: SimpleNamespace(status=lambda: found))
    return Case(["lab", "status"], found.as_json(), ["broker", "w1"], 1, indent=None)


MakeCase = Callable[[Patch, Path], Case]
CASES: list[MakeCase] = [a_drift, a_run, a_verification, a_verification_of_all, two_backups, a_lab]


def call(case: Case, *more: str) -> Result:
    ended = CliRunner().invoke(app, [*case.arguments, *more])
    assert ended.exit_code == case.code, ended.output
    return ended


@pytest.mark.parametrize("make", CASES)
def test_a_script_gets_json_as_ever_or_yaml_or_names(make: MakeCase, tmp_path: Path, monkeypatch: Patch) -> None:
    case = make(monkeypatch, tmp_path)
    as_json = json.dumps(case.document, indent=case.indent) + "\n"

    assert call(case, "--json").stdout == as_json
    assert call(case, "-o", "json").stdout == as_json
    assert yaml.safe_load(call(case, "-o", "yaml").stdout) == json.loads(as_json)
    assert call(case, "-o", "name").stdout.splitlines() == case.names


@pytest.mark.parametrize("make", CASES)
def test_wide_leaves_out_nothing_that_is_shown_otherwise(make: MakeCase, tmp_path: Path, monkeypatch: Patch) -> None:
    case = make(monkeypatch, tmp_path)

    narrow, wide = (re.findall(r"[\w:/.@#-]+", call(case, *more).stdout) for more in ([], ["-o", "wide"]))

    assert set(narrow) <= set(wide)


def test_wide_names_every_missing_slice_and_every_log(tmp_path: Path, monkeypatch: Patch) -> None:
    run, lab = a_run(monkeypatch, tmp_path), a_lab(monkeypatch, tmp_path)

    assert "slice 1, " in call(run).stdout
    assert "29" not in call(run).stdout.split("slice 1,")[1]
    assert ", 28, 29\n" in call(run, "-o", "wide").stdout
    assert str(tmp_path / "a folder with a long name" / "another one" / "worker.log") in call(lab, "-o", "wide").stdout
