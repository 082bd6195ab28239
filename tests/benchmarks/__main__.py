"""Run the benchmarks that are named, or all; print ratios, write ``.eos/benchmarks.json``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks import order_of_restarts
from tests.benchmarks.result import Result

BENCHMARKS: dict[str, Callable[[Console], list[Result]]] = {
    "order_of_restarts": order_of_restarts.run,
}
RESULTS = Path(".eos/benchmarks.json")


def main(names: list[str]) -> None:
    console = Console(highlight=False)
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        sys.exit(f"No benchmark {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
    results = [result for name in names or BENCHMARKS for result in BENCHMARKS[name](console)]
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps([result.to_dict() for result in results], indent=2), encoding="utf-8")
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


if __name__ == "__main__":
    main(sys.argv[1:])
