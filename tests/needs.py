"""What a test starts, as markers: ``-m "not spark"`` leaves out what needs Spark.

A need follows from the fixtures that a test asks for, or from the file that it is in where it starts its parts itself.
So no test names its needs. A test outside ``tests/unit`` without a need ends the collection.
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
    "enabled_lab": frozenset({"broker", "workers"}),
    "lab_factory": frozenset({"broker", "workers"}),
    "machines": frozenset({"machines"}),
    "postgres": frozenset({"postgres"}),
    "spark": frozenset({"spark"}),
    "spark_properties": frozenset({"spark"}),
    "wheel": frozenset({"wheel"}),
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
    "integration/test_properties.py": frozenset({"java"}),
    "integration/test_ssh_roll.py": frozenset({"airflow"}),
    "integration/test_start_here.py": frozenset({"broker", "workers"}),
    "integration/test_systemd_host.py": frozenset({"machines"}),
    "integration/test_spark_cluster.py": frozenset({"spark"}),
    "integration/test_spark_connect.py": frozenset({"spark"}),
    "integration/test_yarn.py": frozenset({"spark"}),
    "system": frozenset({"airflow", "postgres"}),
    "system/test_demo.py": frozenset({"broker", "workers", "spark"}),
    "system/test_interval_dag.py": frozenset({"spark"}),
    "unit/rollout/hosts/machine/test_properties_file.py": frozenset({"processes"}),
    "unit/rollout/hosts/machine/ssh/test_ssh.py": frozenset({"processes"}),
    "unit/rollout/hosts/machine/ssh/test_ssh_logins.py": frozenset({"processes"}),
    "unit/rollout/hosts/machine/test_sudo.py": frozenset({"processes"}),
    "unit/rollout/hosts/service/test_commands.py": frozenset({"processes"}),
    "unit/rollout/hosts/service/test_started.py": frozenset({"processes"}),
    "upstream": frozenset({"airflow", "broker", "postgres", "spark", "workers"}),
}

#: Every need; each is a marker in pyproject.toml.
ALL: frozenset[str] = frozenset().union(*BY_FIXTURE.values(), *BY_PATH.values())


def needs(path: PurePosixPath, fixtures: Collection[str]) -> frozenset[str]:
    """What a test starts."""
    places = [path.as_posix(), *(folder.as_posix() for folder in path.parents)]
    found = [BY_PATH[place] for place in places if place in BY_PATH]
    found += [BY_FIXTURE[fixture] for fixture in fixtures if fixture in BY_FIXTURE]
    return frozenset().union(*found)


def mark(item: pytest.Item) -> None:
    """Mark a test by its needs."""
    for need in sorted(needs(_path(item), getattr(item, "fixturenames", ()))):
        item.add_marker(need)


def starts_something(item: pytest.Item) -> bool:
    """Whether a marked test has a need."""
    return any(mark.name in ALL for mark in item.iter_markers())


def require_needs(items: Iterable[pytest.Item]) -> None:
    """End the collection if a test outside ``tests/unit`` has no need."""
    if nameless := [item.nodeid for item in items if _path(item).parts[0] != "unit" and not starts_something(item)]:
        raise pytest.UsageError(
            f"Tests outside tests/unit of which tests/needs.py does not know what they start: {', '.join(nameless)}. "
            "Add their fixture or their file there, or move them to tests/unit."
        )


def _path(item: pytest.Item) -> PurePosixPath:
    return PurePosixPath(item.path.relative_to(item.config.rootpath / "tests").as_posix())
