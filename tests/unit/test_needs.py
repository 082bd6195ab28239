"""Markers by need: found from fixtures and paths, never forgotten."""

from __future__ import annotations

from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import cast

import pytest

from tests.needs import BY_PATH, needs, require_needs


@pytest.mark.parametrize(
    ("path", "fixtures", "expected"),
    [
        ("unit/connect/test_group.py", ["tmp_path"], set()),
        ("integration/test_roll.py", ["lab", "lab_factory"], {"broker", "workers"}),
        ("integration/test_spark_write.py", ["spark", "lab_factory"], {"broker", "workers", "spark"}),
        ("faults/test_interleavings.py", ["story", "broker"], {"broker"}),
        ("system/test_cluster_dags.py", ["lab_factory"], {"airflow", "postgres", "broker", "workers"}),
        ("system/test_demo.py", [], {"airflow", "postgres", "broker", "workers", "spark"}),
    ],
)
def test_needs_come_from_fixtures_and_from_the_file(path: str, fixtures: list[str], expected: set[str]) -> None:
    assert needs(PurePosixPath(path), fixtures) == expected


def test_each_path_is_there(request: pytest.FixtureRequest) -> None:
    assert [path for path in BY_PATH if not (request.config.rootpath / "tests" / path).exists()] == []


@pytest.fixture
def postgres() -> None:
    """Named like the fixture that starts a PostgreSQL; it starts nothing."""


def test_a_test_is_marked_when_it_is_collected(request: pytest.FixtureRequest, postgres: None) -> None:
    assert request.node.get_closest_marker("postgres")
    assert not request.node.get_closest_marker("broker")


def test_a_test_outside_the_unit_tests_without_a_need_is_named(request: pytest.FixtureRequest) -> None:
    node = request.node
    require_needs([node])
    elsewhere = SimpleNamespace(
        nodeid="tests/system/test_x.py::test_it",
        path=node.config.rootpath / "tests" / "system" / "test_x.py",
        config=node.config,
        iter_markers=lambda: [],
    )
    with pytest.raises(pytest.UsageError, match=r"tests/system/test_x\.py::test_it"):
        require_needs([cast(pytest.Item, elsewhere)])
