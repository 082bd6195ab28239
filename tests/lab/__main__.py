"""``python -m tests.lab up|status|down``: ``eos lab``, and ``up`` also takes ``--secure`` and ``--machines N``."""

from __future__ import annotations

import argparse
import sys

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.lab.command import Kind, lab_app
from tests.lab.lab import TestLab


def main() -> int:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--secure", action="store_true", default=None)
    parser.add_argument("--machines", type=int)
    ours, rest = parser.parse_known_args()
    given = {name: value for name, value in vars(ours).items() if value is not None}
    if ours.machines:
        given["workers"] = ours.machines  # --workers is read later, and counts more
    try:
        lab_app(rest, prog_name="python -m tests.lab", obj=Kind(TestLab, given))
    except EosError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
