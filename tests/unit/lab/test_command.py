from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.lab.lab_command import _table, lab_app
from airflow_eos_provider.lab.lab_status import LabStatus, ProcessStatus
from airflow_eos_provider.terminal import DataConsole


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["up", "--brokers", "2"], "2 brokers"),
        (["up", "--connect-version", "2.8.0"], "no locked jars of Kafka 2.8.0"),
        (["up", "--worker-property", "connect.protocol"], "'connect.protocol' is no property"),
        (["up", "--name", "a/b"], "cannot be named"),
        (["status"], "no lab in"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_made(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(lab_app, arguments)
    assert isinstance(result.exception, EosError)
    assert message in str(result.exception)
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--workers=21", "--workers=-1", "--rebalance-delay=-1", "--session-timeout=100"])
def test_a_number_out_of_range_is_a_usage_error(option: str) -> None:
    result = CliRunner().invoke(lab_app, ["up", option])
    assert result.exit_code == 2
    assert "Input should be" in result.stderr


def test_down_without_a_lab_is_content(tmp_path: Path) -> None:
    result = CliRunner().invoke(lab_app, ["down", "--dir", str(tmp_path)])
    assert result.exit_code == 0
    assert "nothing to do" in result.stderr


def test_up_does_not_start_on_a_folder_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "default").mkdir()
    (tmp_path / "default" / "letter.txt").write_text("dear")
    result = CliRunner().invoke(lab_app, ["up", "--dir", str(tmp_path)])
    assert "is not empty, and not a lab" in str(result.exception)
    assert (tmp_path / "default" / "letter.txt").exists()


def test_an_address_is_whole_at_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    worker = ProcessStatus("w1", 1_234_567, True, "http://127.0.0.1:18083", "preparing", Path("log"))
    found = LabStatus("default", Path("/lab"), "127.0.0.1:9092", "g", (worker,), (7_654_321,))

    DataConsole(soft_wrap=True, width=80).print(_table(found))

    shown = capsys.readouterr().out
    assert "http://127.0.0.1:18083" in shown
    assert "…" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
