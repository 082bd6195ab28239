"""What the shell completes from a cluster: ids and names.

A command line that is being typed has no room for an error and no time to wait. So names that are not found, or not
soon enough, are not completed.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import typer

from airflow_eos_provider.cli.common import cluster_file
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.connect_session import ConnectSession

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


def complete_pipeline(ctx: typer.Context, incomplete: str) -> list[Candidate]:
    """Pipelines of the group."""
    from airflow_eos_provider.interval import verify

    return candidates(
        ctx, incomplete, lambda cluster: ((name, "") for name in verify.pipelines(cluster.kafka, _group(ctx)))
    )


def complete_run(ctx: typer.Context, incomplete: str) -> list[Candidate]:
    """Runs with their states; of the pipeline alone that the word or ``--pipeline`` names."""
    from airflow_eos_provider.interval import verify
    from airflow_eos_provider.interval.pipeline import Pipeline

    def look(cluster: ConnectCluster) -> Iterator[Candidate]:
        group, only = _group(ctx), ctx.params.get("pipeline")
        names = [only] if only else verify.pipelines(cluster.kafka, group)
        begun = [
            name for name in names if only or f"{name}@".startswith(incomplete) or incomplete.startswith(f"{name}@")
        ]
        runs = verify.all_statuses([Pipeline(name=name, group_id=group, kafka=cluster.kafka) for name in begun])
        for found in chain.from_iterable(runs):
            run = found.run.interval_name if only else found.run.name
            yield run, "complete" if found.complete else "running"

    return candidates(ctx, incomplete, look)


def _group(ctx: typer.Context) -> str:
    from airflow_eos_provider.interval.interval import DEFAULT_GROUP_ID

    return ctx.params.get("group") or DEFAULT_GROUP_ID
