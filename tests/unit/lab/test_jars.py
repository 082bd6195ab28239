from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.lab.jars import jars
from airflow_eos_provider.lab.jars.ivy import Artifact, ivy_jar
from airflow_eos_provider.lab.jars.jars import JarLock, ensure_jars, place
from tests.lab.jars import EXTRAS, MODULES, ROOTS, file_of, lock_of, text_of

VERSION = "4.3.1"
ONE = Artifact("org.example", "one", "1.0")
TEST_JAR = Artifact("org.example", "one", "1.0", "test")
CONTENT = {ONE: b"jar one", TEST_JAR: b"tests of jar one"}


@pytest.fixture
def lock(monkeypatch: pytest.MonkeyPatch) -> JarLock:
    """A lock of two small jars in the place of the real one."""
    small = JarLock(VERSION, {jar: hashlib.sha256(content).hexdigest() for jar, content in CONTENT.items()})
    monkeypatch.setattr(JarLock, "of", classmethod(lambda cls, version: small))
    return small


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> dict[Artifact, bytes]:
    """What Ivy would deliver; a real repository cannot be made to deliver a wrong jar."""
    content = dict(CONTENT)

    def retrieve(artifacts: Iterable[Artifact], into: Path, *_: Any) -> None:
        for jar in artifacts:
            if jar not in content:
                raise UnreachableError("the repository does not answer")
            (into / jar.file_name).write_bytes(content[jar])

    monkeypatch.setattr(jars, "retrieve", retrieve)
    return content


@pytest.mark.parametrize("name", MODULES)
def test_the_committed_lock_holds_every_module_and_is_written_as_the_lock_command_writes_it(name: str) -> None:
    locked = lock_of(name)
    assert {*MODULES[name], *EXTRAS.get(name, ())} <= {str(jar) for jar in locked.digests}
    assert all(len(digest) == 64 and int(digest, 16) for digest in locked.digests.values())
    assert file_of(name).read_text(encoding="utf-8") == text_of(name, locked)


def test_the_lab_has_each_version_that_is_locked() -> None:
    assert list(ROOTS) == list(jars.VERSIONS)


def test_no_two_locked_jars_share_a_file() -> None:
    locked = JarLock.of(VERSION)
    assert len({place(Path(), jar) for jar in locked.digests}) == len(locked.digests) > 90


def test_a_version_without_a_lock_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"no locked jars of Kafka 3\.0\.0[\s\S]*4\.3\.1"):
        JarLock.of("3.0.0")


def test_jars_are_fetched_once(
    tmp_path: Path, lock: JarLock, repository: dict[Artifact, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ensure_jars(VERSION, cache=tmp_path)
    assert {jar: place(folder, jar).read_bytes() for jar in CONTENT} == CONTENT
    monkeypatch.setattr(jars, "retrieve", _must_not_be_called)
    assert ensure_jars(VERSION, cache=tmp_path) == folder


def test_a_jar_that_is_not_what_was_locked_is_refused_and_not_kept(
    tmp_path: Path, lock: JarLock, repository: dict[Artifact, bytes]
) -> None:
    repository[ONE] = b"something else"
    with pytest.raises(EosError, match=r"org\.example:one:1\.0 arrived with SHA-256"):
        ensure_jars(VERSION, cache=tmp_path)
    assert not any(path.read_bytes() == b"something else" for path in tmp_path.rglob("*.jar"))


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"jar 0ne")], ids=["missing", "changed"])
def test_only_the_damaged_jar_is_fetched_again(
    tmp_path: Path, lock: JarLock, repository: dict[Artifact, bytes], damage: Callable[[Path], object]
) -> None:
    folder = ensure_jars(VERSION, cache=tmp_path)
    damage(place(folder, ONE))
    del repository[TEST_JAR]  # whoever asks for it again finds nobody
    ensure_jars(VERSION, cache=tmp_path)
    assert place(folder, ONE).read_bytes() == CONTENT[ONE]


def test_a_jar_that_nobody_locked_does_not_reach_the_class_path(
    tmp_path: Path, lock: JarLock, repository: dict[Artifact, bytes]
) -> None:
    folder = ensure_jars(VERSION, cache=tmp_path)
    (folder / "unknown.jar").write_bytes(b"?")
    ensure_jars(VERSION, cache=tmp_path)
    assert not (folder / "unknown.jar").exists()


def test_what_a_killed_fetch_left_is_removed_by_the_next(
    tmp_path: Path, lock: JarLock, repository: dict[Artifact, bytes]
) -> None:
    left = tmp_path / f".fetch-{lock.digest}-abc"
    left.mkdir()
    ensure_jars(VERSION, cache=tmp_path)
    assert not left.exists()


def test_connects_own_tests_are_on_the_class_path_only_when_asked_for(tmp_path: Path) -> None:
    assert jars.class_path(tmp_path) == f"{tmp_path}/*"
    assert jars.class_path(tmp_path, test_connectors=True) == f"{tmp_path}/*:{tmp_path}/test/*"


def test_without_pyspark_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pyspark is missing[\s\S]*airflow-eos-provider\[lab\]"):
        ivy_jar()


def _must_not_be_called(*_: Any) -> None:
    raise AssertionError("fetched again")


def test_the_cache_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jars.jar_folder(VERSION) == tmp_path / "airflow_eos_provider" / "jars" / JarLock.of(VERSION).digest
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert jars.cache_folder() == Path.home() / ".cache" / "airflow_eos_provider" / "jars"
