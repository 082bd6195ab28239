"""A Spark Connect server keeps a Python process of each session that has run a Python function, for as long as it runs.

Each session has a daemon of its own, from which its workers are forked. Idle workers end; the daemon stays when its
session has ended. And it imports pyspark out of a zip, where Python keeps nothing compiled.
"""

from __future__ import annotations

import psutil

from tests.connect_server import ConnectServer, daemon_of
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
    session = server.session()
    try:
        return daemon_of(session)
    finally:
        session.stop()
