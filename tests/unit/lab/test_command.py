from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.lab.command import lab_app


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["up", "--secure"], "--secure is not available yet"),
        (["up", "--brokers", "2"], "2 brokers"),
        (["up", "--connect-version", "2.8.0"], "no locked jars of Kafka 2.8.0"),
        (["up", "--workers", "-1"], "-1 workers"),
        (["up", "--worker-property", "connect.protocol"], "'connect.protocol' is no property"),
        (["up", "--name", "a/b"], "cannot be named"),
        (["status"], "no lab in"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_made(
    arguments: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(lab_app, arguments)
    assert isinstance(result.exception, EosError)
    assert told in str(result.exception)
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_down_without_a_lab_is_content(tmp_path: Path) -> None:
    result = CliRunner().invoke(lab_app, ["down", "--dir", str(tmp_path)])
    assert result.exit_code == 0
    assert "nothing to do" in result.stderr


def test_up_does_not_start_on_a_folder_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "default").mkdir()
    (tmp_path / "default" / "letter.txt").write_text("dear")
    result = CliRunner().invoke(lab_app, ["up", "--dir", str(tmp_path)])
    assert "holds something, but not a lab" in str(result.exception)
    assert (tmp_path / "default" / "letter.txt").exists()
