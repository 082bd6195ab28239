"""The version matrix covers what the package promises; the runs themselves are ``python -m tests.matrix``."""

from __future__ import annotations

import tomllib
from itertools import product
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from tests.matrix import COMBINATIONS

_PROJECT: dict[str, Any] = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]


def test_each_python_is_tried_with_the_lowest_and_the_highest_versions() -> None:
    named = [text.rpartition(" ")[2] for text in _PROJECT["classifiers"] if "Python :: 3." in text]
    tried = {(each.python, each.resolution) for each in COMBINATIONS}
    assert tried == set(product(named, ("lowest-direct", "highest")))
    assert len(named) > 1


def test_every_spark_within_the_extras_bounds_is_tried_and_the_one_before() -> None:
    (spark,) = [r for r in map(Requirement, _PROJECT["optional-dependencies"]["spark"]) if r.name == "pyspark"]
    tried = {each.spark.removeprefix("==").removesuffix(".*") for each in COMBINATIONS}
    within = {
        version
        for version in (f"{major}.{minor}" for major in (3, 4) for minor in range(10))
        if version in spark.specifier
    }
    assert within == {"4.0", "4.1", "4.2"}
    assert tried == within | {"3.5"}
