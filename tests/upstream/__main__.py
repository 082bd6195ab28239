"""``python -m tests.upstream [NAME…]``: shows each fault, or those that are named; ends with 1 if one was not seen."""

from __future__ import annotations

import sys
import time

from tests.upstream.shown import names, show


def main() -> int:
    unseen = 0
    for name in sys.argv[1:] or names():
        began = time.monotonic()
        try:
            said = show(name)
        except AssertionError as error:
            unseen += 1
            said = f"NOT SEEN: {error}"
        print(f"{name} ({time.monotonic() - began:.0f} s): {said}", flush=True)  # noqa: T201
    return int(unseen > 0)


if __name__ == "__main__":
    sys.exit(main())
