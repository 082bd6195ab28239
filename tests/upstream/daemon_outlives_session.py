"""A Spark Connect server keeps a Python process of each session that has run a Python function, for as long as it runs.

Each session has a daemon of its own, from which its workers are forked. Idle workers end; the daemon stays when its
session has ended. And it imports pyspark out of a zip, where Python keeps nothing compiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psutil

from tests.connect_server import ConnectServer
from tests.upstream.own_spark import own_folder, properties_in
from tests.upstream.shown import StartLab

SESSIONS = 3


def show(start: StartLab) -> str:
    with own_folder() as folder:
        server = ConnectServer(folder, properties_in(folder))
        try:
            server.start()
            seen = [_session(server) for _ in range(SESSIONS)]
            alive = [daemon for daemon, _ in seen if psutil.pid_exists(daemon)]
        finally:
            server.stop()
    assert len(set(alive)) == SESSIONS, alive
    assert all("pyspark.zip" in pyspark for _, pyspark in seen), seen
    return f"{SESSIONS} sessions have ended and left {len(alive)} daemons, each with pyspark from {seen[0][1]}"


def _session(server: ConnectServer) -> tuple[int, str]:
    """The daemon of a session that has ended, and where its pyspark was from."""

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import os

        import pyarrow
        import pyspark

        list(batches)
        yield pyarrow.RecordBatch.from_pylist([{"parent": os.getppid(), "pyspark": pyspark.__file__}])

    session = server.session()
    try:
        (row,) = session.range(0, 1, 1, 1).mapInArrow(look, "parent long, pyspark string").collect()
    finally:
        session.stop()
    return row.parent, row.pyspark
