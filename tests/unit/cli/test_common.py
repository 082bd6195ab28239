"""What the commands share: which cluster they mean (a path, a name, or what is here), and their progress."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from airflow_eos_provider.cli import common
from airflow_eos_provider.cli.common import cluster_file, print_share_read
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.terminal import DataConsole


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of named clusters, with one; the current folder is another one."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    named = tmp_path / "config" / "airflow_eos_provider" / "clusters"
    named.mkdir(parents=True)
    (named / "prod.yaml").touch()
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return named


def test_a_cluster_is_called_by_its_name_or_its_path(folder: Path) -> None:
    assert cluster_file(Path("prod")) == folder / "prod.yaml"
    assert cluster_file(Path("prod.yaml")) == Path("prod.yaml")
    assert cluster_file(Path("./sub/prod")) == Path("sub/prod")
    Path("prod").touch()
    assert cluster_file(Path("prod")) == Path("prod")  # a file that is here comes first


def test_a_name_that_nobody_has_is_answered_with_those_that_there_are(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="There is no cluster test: ") as unknown:
        cluster_file(Path("test"))
    assert "one of prod, or the path of a cluster file" in str(unknown.value)


def test_names_and_files_are_completed(folder: Path) -> None:
    Path("prague.yaml").touch()
    assert common._complete_cluster("pr") == ["prod", "prague.yaml"]
    assert common._complete_cluster(f"{folder}/p") == [f"{folder}/prod.yaml"]
    assert common._complete_cluster("**") == []  # not a pattern


def test_a_bar_of_progress_is_for_a_terminal_and_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {}
    for terminal in (True, False):
        screen = io.StringIO()
        monkeypatch.setattr(common, "progress_console", DataConsole(file=screen, force_terminal=terminal, width=80))
        for passed in (50, 100):
            print_share_read("connect-offsets", passed, 100)
            shown[terminal, passed] = screen.getvalue()
    assert shown[True, 50].endswith("connect-offsets: [##########          ]  50% read\r")
    assert shown[True, 100] == shown[True, 50] + "\x1b[2K\r"
    assert shown[False, 100] == ""
