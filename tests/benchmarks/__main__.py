"""Run the benchmarks that are named, or all; print ratios, write ``.eos/benchmarks.json``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests import airflow_home as airflow_home  # before any import of Airflow
from tests.benchmarks import (
    backfill,
    fencing,
    interval_overhead,
    look_cost,
    offsets,
    order_of_restarts,
    produce,
    roll_ssh_vs_local,
    spark_write,
)
from tests.benchmarks.result import Result

BENCHMARKS: dict[str, Callable[[Console], list[Result]]] = {
    "backfill_days_a_minute": backfill.run,
    "backfill_hours_a_minute": backfill.run_hours,
    "fence_vs_java_admin": fencing.run,
    "interval_overhead": interval_overhead.run,
    "look_cost": look_cost.run,
    "offsets_backup_rate": offsets.backup_rate,
    "offsets_list_vs_rest": offsets.list_vs_rest,
    "order_of_restarts": order_of_restarts.run,
    "produce_vs_java": produce.run,
    "roll_ssh_vs_local": roll_ssh_vs_local.run,
    "write_files_vs_spark_sink": spark_write.files_against_spark_sink,
    "write_vs_foreachpartition": spark_write.against_foreachpartition,
    "write_vs_spark_sink": spark_write.against_spark_sink,
}
RESULTS = Path(".eos/benchmarks.json")


def main(names: list[str]) -> None:
    console = Console(highlight=False)
    results = [result for name in _named(names) for result in BENCHMARKS[name](console)]
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    measured = {result.name for result in results}
    kept = [r for r in _earlier_results() if r["name"] not in measured]
    RESULTS.write_text(json.dumps(kept + [result.to_dict() for result in results], indent=2), encoding="utf-8")
    table = Table("benchmark", "ours", "peer", "ratio", "better", "what")
    for result in results:
        unit = result.unit
        table.add_row(
            result.name,
            f"{result.ours:.1f} {unit}",
            f"{result.peer:.1f} {unit}",
            f"{result.ratio:.2f}",
            result.better,
            result.what,
        )
    console.print(table)


def _named(arguments: list[str]) -> list[str]:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all if none is given: {', '.join(BENCHMARKS)}")
    names: list[str] = parser.parse_args(arguments).names
    if unknown := sorted(set(names) - set(BENCHMARKS)):
        parser.error(f"no benchmark {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
    return names or list(BENCHMARKS)


def _earlier_results() -> list[dict[str, Any]]:
    """What earlier runs have measured, so that a run of one benchmark leaves the others' figures alone."""
    return list(json.loads(RESULTS.read_text(encoding="utf-8"))) if RESULTS.exists() else []


if __name__ == "__main__":
    main(sys.argv[1:])
