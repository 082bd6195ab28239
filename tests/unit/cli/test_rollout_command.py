"""``eos plan`` and ``eos apply`` where the place they run in lacks something."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.cli.common import actor
from airflow_eos_provider.cli.rollout import plan_apply


class Made:
    """Of a plan only its hash and its content are kept."""

    hash = "3f1c09ab77d2"

    def to_dict(self) -> dict[str, str]:
        return {"hash": self.hash}


def test_a_plan_is_shown_where_it_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: Any = Made()
    (tmp_path / ".eos").write_text("no folder can be made here, for whatever user")
    monkeypatch.chdir(tmp_path)

    plan_apply.keep(made)

    assert "warning: the plan is not kept" in capsys.readouterr().err
    (tmp_path / ".eos").unlink()
    plan_apply.keep(made)
    assert (tmp_path / ".eos/plans/3f1c09ab77d2.json").is_file()
    assert capsys.readouterr().err == ""


def test_a_user_without_a_name_is_named_by_the_uid(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: int) -> Any:
        raise KeyError("getpwuid(): uid not found: 4711")

    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.setattr("os.getuid", lambda: 4711)
    with pytest.raises((KeyError, OSError)):
        getpass.getuser()

    assert actor() == "uid 4711"
