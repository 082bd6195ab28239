from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.lab.record import LabOptions, LabRecord

RECORD = LabRecord(
    options=LabOptions(name="a", workers=2, mode=Mode.PREPARING),
    token="t",
    broker_jars=Path("/jars"),
    worker_jars=Path("/jars"),
    cluster_id="c",
    broker_ports=((1, 2),),
    worker_ports=(3, 4),
    complete=True,
)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    RECORD.write(tmp_path)
    assert LabRecord.read(tmp_path) == RECORD


def test_older_workers_have_jars_of_their_own_and_the_broker_keeps_its(tmp_path: Path) -> None:
    today = LabRecord.draw(LabOptions(name="a"))
    assert today.worker_jars == today.broker_jars
    older = LabRecord.draw(
        LabOptions(name="a", connect_version="3.8.1", worker_properties={"connect.protocol": "eager"})
    )
    assert older.broker_jars == today.broker_jars != older.worker_jars
    older.write(tmp_path)
    assert LabRecord.read(tmp_path) == older


def test_a_new_lab_gets_ports_of_its_own_for_each_part(tmp_path: Path) -> None:
    record = LabRecord.draw(LabOptions(name="a", workers=2, brokers=3))
    assert len(record.broker_ports) == 3
    assert len({*sum(record.broker_ports, ()), *record.worker_ports}) == 8
    record.write(tmp_path)
    assert LabRecord.read(tmp_path) == record


def test_no_record_is_no_error(tmp_path: Path) -> None:
    assert LabRecord.read(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 99}', '{"schema": 1, "options": {"mode": "fast"}}'])
def test_a_record_that_cannot_be_read_names_the_way_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "lab.json").write_text(text)
    with pytest.raises(ConfigurationError, match="eos lab down"):
        LabRecord.read(tmp_path)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"name": "../x"}, "cannot be named"),
        ({"name": "Big"}, "cannot be named"),
        ({"brokers": 2}, "2 brokers"),
        ({"connect_version": "3.7.2"}, "no locked jars"),
    ],
)
def test_options_out_of_range_are_refused(option: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        LabOptions(**option)


def test_the_folder_is_absolute_wherever_the_lab_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert LabOptions(name="a").folder == tmp_path / ".eos/lab/a"


def test_a_lab_with_other_options_is_told_by_the_options_that_differ() -> None:
    wanted = LabOptions(name="a", workers=3, mode=Mode.PREPARING, root=Path("/elsewhere"))
    assert RECORD.differences(wanted) == ["workers: it has 2, 3 is asked for"]
