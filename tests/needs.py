"""What a test starts, as markers: ``-m "not spark"`` leaves out what needs Spark.

A need follows from the fixtures that a test asks for, or from the file that it is in where it starts its parts itself.
So no test names its needs, and none can forget to: a slow test without a need ends the collection.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePosixPath

import pytest

#: Fixture -> needs.
BY_FIXTURE: Mapping[str, frozenset[str]] = {
    "broker": frozenset({"broker"}),
    "broker_lab": frozenset({"broker"}),
    "disabled_lab": frozenset({"broker", "workers"}),
    "lab_factory": frozenset({"broker", "workers"}),
    "machines": frozenset({"machines"}),
    "postgres": frozenset({"postgres"}),
    "spark": frozenset({"spark"}),
    "spark_properties": frozenset({"spark"}),
}

#: Folder or file below ``tests`` -> needs of all tests in it.
BY_PATH: Mapping[str, frozenset[str]] = {
    "browser": frozenset({"airflow", "browser"}),
    "faults": frozenset({"broker"}),
    "faults/test_ssh_faults.py": frozenset({"workers", "machines"}),
    "integration/test_debezium.py": frozenset({"postgres"}),
    "integration/test_lab.py": frozenset({"broker", "workers"}),
    "integration/test_hosts_commands.py": frozenset({"broker", "workers", "machines"}),
    "integration/test_lab_machines.py": frozenset({"broker", "workers", "machines"}),
    "integration/test_lab_postgres.py": frozenset({"postgres"}),
    "integration/test_ssh_roll.py": frozenset({"airflow"}),
    "integration/test_start_here.py": frozenset({"broker", "workers"}),
    "integration/test_systemd_host.py": frozenset({"machines"}),
    "integration/test_spark_cluster.py": frozenset({"spark"}),
    "integration/test_spark_connect.py": frozenset({"spark"}),
    "integration/test_yarn.py": frozenset({"spark"}),
    "system": frozenset({"airflow", "postgres"}),
    "system/test_demo.py": frozenset({"broker", "workers", "spark"}),
    "system/test_interval_dag.py": frozenset({"spark"}),
    "upstream": frozenset({"airflow", "broker", "postgres", "spark", "workers"}),
    "unit/test_packaging.py": frozenset({"wheel"}),
}


def needs(path: PurePosixPath, fixtures: Collection[str]) -> frozenset[str]:
    """What a test starts.

    :param path: of its file, from ``tests`` on.
    :param fixtures: the names of all fixtures that it uses, those of other fixtures included.
    """
    places = [path.as_posix(), *(folder.as_posix() for folder in path.parents)]
    found = [BY_PATH[place] for place in places if place in BY_PATH]
    found += [BY_FIXTURE[fixture] for fixture in fixtures if fixture in BY_FIXTURE]
    return frozenset().union(*found)


def slow_without_need(tests: Iterable[tuple[str, Collection[str]]]) -> list[str]:
    """The slow tests that start nothing that is known here.

    :param tests: name and markers of each.
    """
    known = frozenset().union(*BY_FIXTURE.values(), *BY_PATH.values())
    return [name for name, markers in tests if "slow" in markers and known.isdisjoint(markers)]


def mark(item: pytest.Item) -> None:
    """Mark a test by its needs."""
    path = PurePosixPath(item.path.relative_to(item.config.rootpath / "tests").as_posix())
    for need in sorted(needs(path, getattr(item, "fixturenames", ()))):
        item.add_marker(need)


def require_needs(items: Iterable[pytest.Item]) -> None:
    """End the collection if there is a slow test without a need.

    :raises pytest.UsageError: names those tests.
    """
    nameless = slow_without_need((item.nodeid, {mark.name for mark in item.iter_markers()}) for item in items)
    if nameless:
        raise pytest.UsageError(
            f"Slow tests of which tests/needs.py does not know what they start: {', '.join(nameless)}. "
            "Add their fixture or their file there."
        )
