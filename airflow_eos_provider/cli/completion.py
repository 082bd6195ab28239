"""What the shell completes from a cluster: ids and names.

A command line that is being typed has no room for an error and no time to wait. So names that are not found, or not
soon enough, are not completed.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator

import typer

from airflow_eos_provider.cli.common import cluster_file
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.session import ConnectSession

#: For how long a completion looks, seconds.
LOOK_SECONDS = 3.0

#: A word that a shell takes as it stands. Another one is left out: it would become several words, or a command.
_PLAIN = re.compile(r"[\w.:/@#%+=,][\w.:/@#%+=,-]*")

#: A word, and what is said beside it.
Candidate = tuple[str, str]


def candidates(
    ctx: typer.Context, incomplete: str, look: Callable[[ConnectCluster], Iterable[Candidate]]
) -> list[Candidate]:
    """What the cluster of a command line has that begins like the incomplete word.

    :param look: finds it, one after the other. What it has found before it raises an error, or within
        :data:`LOOK_SECONDS`, is taken.
    """
    found: list[Candidate] = []

    def gather() -> None:
        with contextlib.suppress(Exception):
            cluster = ConnectCluster.from_file(cluster_file(ctx.params.get("cluster")))
            for word, text in look(cluster):
                if word.startswith(incomplete) and _PLAIN.fullmatch(word):
                    found.append((word, text))

    # A daemon, for the process has to end even if a client waits for a broker.
    looking = threading.Thread(target=gather, name="completion", daemon=True)
    looking.start()
    looking.join(LOOK_SECONDS)
    return list(found)


def complete_connector(ctx: typer.Context, incomplete: str) -> list[Candidate]:
    """Names of connectors that have source offsets and fencing rounds."""
    return candidates(ctx, incomplete, _source_connectors)


def _source_connectors(cluster: ConnectCluster) -> Iterator[Candidate]:
    with ConnectSession(cluster) as session:
        found = session.first_answer(lambda rest: rest.infos(), seconds=LOOK_SECONDS / len(cluster.workers))
    yield from ((name, "") for name, connector in sorted(found.items()) if connector.type != "sink")


def complete_worker(ctx: typer.Context, incomplete: str) -> list[Candidate]:
    """Names of workers, as the cluster file has them; nobody is asked."""
    return candidates(ctx, incomplete, lambda cluster: [(worker.worker_id, "") for worker in cluster.workers])
