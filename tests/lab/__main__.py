"""``python -m tests.lab up --secure`` (with logins and ACLs) or ``up --machines N``, and ``down``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.lab.record import LabOptions
from tests.lab.lab import TestLab, TestLabOptions, take_down


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    parser.add_argument("verb", choices=["up", "down"])
    parser.add_argument("--name", default=LabOptions.name)
    parser.add_argument("--dir", dest="root", type=Path, default=LabOptions.root)
    parser.add_argument("--secure", action="store_true")
    parser.add_argument("--machines", type=int, default=0)
    parser.add_argument("--workers", type=int, default=argparse.SUPPRESS)
    parser.add_argument("--mode", type=Mode, default=Mode.DISABLED)
    given = vars(parser.parse_args())
    verb = given.pop("verb")
    try:
        options = TestLabOptions(**given)
        if verb == "up":
            sys.stdout.write(json.dumps(TestLab.up(options, _tell).summary()) + "\n")
        else:
            take_down(options.folder, progress=_tell)
    except EosError as error:
        _tell(str(error))
        return error.exit_code
    return 0


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
