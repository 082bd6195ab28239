"""The tests' files are kept in memory where there is room: no broker waits for a disk.

A virtual machine's disk may stall for a minute: brokers stop for longer than a transaction may be open.
Imported before anything asks for the temporary folder; ``TMPDIR`` chooses another one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")

#: A complete run needs less than a tenth of it.
_ROOM_BYTES = 4 << 30

#: Where Java keeps its temporary files: it knows no ``TMPDIR``.
JAVA = Path("/tmp")


def _has_room() -> bool:
    if not MEMORY.is_dir() or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(MEMORY).free >= _ROOM_BYTES


if "TMPDIR" not in os.environ and _has_room():
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)
