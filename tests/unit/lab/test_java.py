from __future__ import annotations

from pathlib import Path

import pytest

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.lab.jars.java import java_program, java_release


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("command not found", None),
    ],
)
def test_the_release_is_read_from_what_java_prints(text: str, release: int | None) -> None:
    assert java_release(text) == release


@pytest.fixture
def java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java_program.cache_clear()
    return tmp_path


@pytest.fixture(autouse=True)
def _forget_the_java_of_a_test() -> object:
    yield
    java_program.cache_clear()


def test_a_java_that_is_too_old_is_refused_by_its_release(java_home: Path) -> None:
    java = java_home / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(ConfigurationError, match=r"is Java 11\.[\s\S]*Java 17 or newer"):
        java_program()


def test_a_java_home_without_java_is_named(java_home: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"no java in JAVA_HOME \\({java_home}\\)"):
        java_program()
