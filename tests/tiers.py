"""Which tests run: ``pytest`` the first tier, ``pytest --all`` every proof, a named file all of its tests.

The first tier has the tests that start nothing (``tests/needs.py``), and those marked ``first``: each promise once on
real parts. Tests marked ``by_name`` run only if their file is named: docs/contributing/tests.md lists them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.needs import starts_something

#: Files that one process runs, for they share what it has started: a broker, workers, a Spark session.
FAMILIES = {
    "integration": {
        "spark": ("spark_inputs", "spark_sources", "spark_write"),
        "topics": ("drain", "fencing", "intervals_command", "offsets_topic", "reading"),
        "disabled": ("kafka_connect_hook", "log_watch"),
        "enabled": ("offsets", "wire_formats"),
    },
    "faults": {
        "broker": (
            *("concurrency", "errors", "failure_matrix", "interleavings", "random_kills", "topics"),
            "two_controllers",
        ),
    },
}
_FAMILY_OF = {
    f"tests/{folder}/test_{name}.py": f"{folder}: {family}"
    for folder, families in FAMILIES.items()
    for family, names in families.items()
    for name in names
}


def family_of(file: str) -> str:
    """The files that one process runs, by the path of one of them from the repository on."""
    return _FAMILY_OF.get(file, file)


class Families(LoadFileScheduling):  # type: ignore[misc]
    """Gives each process a family of files at a time."""

    def _split_scope(self, nodeid: str) -> str:
        return family_of(super()._split_scope(nodeid))


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run every test that proves a promise, not the first tier only")


def imports_nothing_for(config: pytest.Config, path: Path) -> bool:
    """Whether no test of a file is in the chosen tier, so that it need not be imported."""
    if _everything(config) or "unit" in path.parts or path.suffix != ".py" or path in _named(config):
        return False
    return "pytest.mark.first" not in path.read_text(encoding="utf-8")


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is in no chosen tier and in no file that is named. ``-m`` chooses among all but ``by_name``."""
    named, everything = _named(config), _everything(config)
    left = [item for item in items if item.path not in named and not _runs(item, everything)]
    if left:
        config.hook.pytest_deselected(items=left)
        out = set(left)
        items[:] = [item for item in items if item not in out]


def _named(config: pytest.Config) -> set[Path]:
    return {(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args}


def _everything(config: pytest.Config) -> bool:
    return bool(config.getoption("--all") or config.getoption("markexpr"))


def _runs(item: pytest.Item, everything: bool) -> bool:
    if item.get_closest_marker("by_name"):
        return False
    return everything or not starts_something(item) or item.get_closest_marker("first") is not None
