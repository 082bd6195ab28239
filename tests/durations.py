"""Shows where a run's time went, and writes the table by which the test files are ordered.

``python -m tests.durations REPORT.xml`` prints each file's seconds and the slowest tests; with ``--write`` it replaces
the table as well. The report is pytest's own, of a full run: ``pytest --junitxml=REPORT.xml``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

TABLE = Path(__file__).with_name("durations.json")

#: So many tests are printed.
SLOWEST = 10


def cases(report: Path) -> Iterator[tuple[str, str, float]]:
    """File, name and seconds of each test, its fixtures included."""
    for case in ElementTree.parse(report).iter("testcase"):
        if "classname" not in case.attrib:  # the end of a session, which is no test's
            continue
        parts = case.attrib["classname"].split(".")
        classes = []
        while parts and parts[-1][:1].isupper():  # test classes
            classes.insert(0, parts.pop())
        name = "::".join([*classes, case.attrib["name"]])
        yield "/".join(parts) + ".py", name, float(case.attrib["time"])


def seconds_by_file(report: Path) -> dict[str, int]:
    """Whole seconds that the tests of each file took, the longest first."""
    sums: dict[str, float] = defaultdict(float)
    for file, _, seconds in cases(report):
        sums[file] += seconds
    return {file: round(total) for file, total in sorted(sums.items(), key=lambda row: -row[1])}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("--write", action="store_true", help=f"replace {TABLE.name}")
    chosen = parser.parse_args(arguments)
    found = seconds_by_file(chosen.report)
    for file, seconds in found.items():
        sys.stdout.write(f"{seconds:6} s  {file}\n")
    sys.stdout.write(f"{sum(found.values()):6} s  in {len(found)} files; the slowest tests:\n")
    for file, name, time in sorted(cases(chosen.report), key=lambda case: -case[2])[:SLOWEST]:
        sys.stdout.write(f"{time:6.0f} s  {file}::{name}\n")
    missing = [file for file in found if not (TABLE.parent.parent / file).is_file()]
    if missing:
        raise SystemExit(f"The report names files that are not here: {', '.join(missing)}.")
    if chosen.write:
        TABLE.write_text(json.dumps(_merged(found), indent=2) + "\n", encoding="utf-8")


def _merged(found: dict[str, int]) -> dict[str, int]:
    """What was found; files that were not run, such as those by name, keep their seconds."""
    before: dict[str, int] = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    kept = {file: seconds for file, seconds in before.items() if (TABLE.parent.parent / file).is_file()}
    return dict(sorted((kept | found).items(), key=lambda row: -row[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
