"""The package as it is built and installed."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import airflow_eos_provider

ROOT = Path(__file__).parents[2]


def test_pyspark_and_pyspark_client_agree_since_they_own_one_folder() -> None:
    import pyspark

    assert metadata.version("pyspark") == metadata.version("pyspark-client") == pyspark.__version__


def test_pyspark_has_its_jars_for_the_lab_needs_the_ivy_among_them() -> None:
    import pyspark

    assert list((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))


def test_the_installed_version_is_the_one_in_the_source() -> None:
    assert metadata.version("airflow-eos-provider") == airflow_eos_provider.__version__


def test_airflow_finds_the_provider_by_its_entry_point() -> None:
    (entry,) = [
        entry
        for entry in metadata.entry_points(group="apache_airflow_provider")
        if entry.value.startswith("airflow_eos_provider.")
    ]
    assert entry.load()()["package-name"] == "airflow-eos-provider"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    uv = shutil.which("uv")
    assert uv is not None, "uv is a prerequisite: pip install uv"
    subprocess.run(
        [uv, "build", "--wheel", "--out-dir", str(tmp_path)], cwd=ROOT, check=True, capture_output=True, timeout=300
    )
    (wheel,) = tmp_path.glob("*.whl")
    return wheel


def test_the_wheel_contains_every_module_and_nothing_of_the_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = ROOT / "airflow_eos_provider"
    sources = {
        str(path.relative_to(ROOT))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    assert sources, "there is nothing to compare with"
    assert sources <= names
    assert {name.split("/")[0] for name in names} == {
        "airflow_eos_provider",
        f"airflow_eos_provider-{airflow_eos_provider.__version__}.dist-info",
    }
    (entry_points,) = [name for name in names if name.endswith("entry_points.txt")]
    with zipfile.ZipFile(wheel) as archive:
        assert "apache_airflow_provider" in archive.read(entry_points).decode()


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert text.partition("\n## ")[2].split()[0] == airflow_eos_provider.__version__


def test_a_modules_name_occurs_once() -> None:
    """But surfaces name a module after what it shows, and each change is declared in its ``change.py``."""
    package = Path(airflow_eos_provider.__file__).parent
    surfaces = "assets cli dag_factories decorators demo hooks notifications operators sensors triggers ui"
    places: dict[str, list[str]] = {}
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package)
        is_named_alike = place.parts[0] in surfaces.split() or place.match("changes/*/change.py")
        if not is_named_alike and path.stem != "__init__":
            places.setdefault(path.stem, []).append(str(place))
    assert [where for where in places.values() if len(where) > 1] == []
