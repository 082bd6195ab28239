"""``python -m airflow_eos_provider.lab``: the same as ``eos lab``."""

from __future__ import annotations

import sys

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.lab.command import lab_app


def main() -> int:
    """Run the command; an error of ours is its message and its exit code, not a traceback."""
    try:
        lab_app(prog_name="eos lab")
    except EosError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
