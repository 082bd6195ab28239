"""``eos topics list``: what the internal topics contain, and whether they make workers start slowly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.text import Text

from airflow_eos_provider.cli.common import (
    console,
    load_cluster,
    print_share_read,
    table,
)
from airflow_eos_provider.cli.look import Found
from airflow_eos_provider.connect.topics.config_census import (
    Census,
    ConfigTopicLook,
    Counts,
    counted_records,
    look_at_config_topic,
)
from airflow_eos_provider.connect.topics.internal_topics import CONFIGS, OFFSETS, STATUS, read_worker_files

#: A topic with this many dead records for each live one, and so many at least, is worth compacting.
DEAD_PER_LIVE = 10
MANY_DEAD = 100_000


def list_(cluster: Path | None) -> Found:
    """Show what the internal topics contain: live and dead records, leftovers, writers, time to read. Changes nothing.

    A worker reads all of them before it joins its group. The config topic is counted by kind of record and connector.
    """
    described = load_cluster(cluster)
    files = read_worker_files(described)
    name = files.common(CONFIGS)
    look = look_at_config_topic(
        described.kafka, name, described.group_id, lambda passed, total: print_share_read(name, passed, total)
    )
    others = [counted_records(described.kafka, files.common(each)) for each in (OFFSETS, STATUS)]
    total = look.census.total
    counts = [Counts(name, total.live, total.dead), *others]
    advice = (*advice_for(look.census), *(line for each in counts for line in dead_advice(each)))
    document = {
        "config_topic": {"topic": name, "read_seconds": round(look.read_seconds, 3), **look.census.to_dict()},
        "topics": [asdict(each) for each in others],
        "advice": list(advice),
    }
    return Found(document, [name, *(each.topic for each in others)], lambda wide: _show(look, others, advice))


def dead_advice(counts: Counts) -> tuple[str, ...]:
    """What to do about a topic that compaction does not keep small."""
    if counts.dead < max(MANY_DEAD, DEAD_PER_LIVE * counts.live):
        return ()
    return (
        f"{counts.topic}: {counts.dead:,} of {counts.live + counts.dead:,} records are dead, and each worker reads "
        "them when it starts. Check that cleanup.policy is compact. Compaction removes them when the active segment "
        "rolls: set segment.ms to an hour (3600000) and min.cleanable.dirty.ratio to 0.1, and check again.",
    )


def advice_for(census: Census) -> tuple[str, ...]:
    """What to do about a topic that is not as it should be."""
    found: list[str] = []
    if census.leftovers:
        names = ", ".join(list(census.leftovers)[:3])
        found.append(
            f"{len(census.leftovers)} connectors that do not exist have left records ({names}). They do no harm, and a "
            "connector of the same name takes over the task count record and its source offsets."
        )
    if census.foreign:
        found.append(
            f"{census.foreign} records that only the group's leader writes are of another transactional producer: "
            "another group on this topic, or a tool. Compare config.storage.topic of the groups on this Kafka cluster."
        )
    if census.state.unknown or census.state.malformed:
        count = len(census.state.unknown) + len(census.state.malformed)
        found.append(f"Connect does not know {count} records; it logs an error for each at every start.")
    return tuple(found)


def _show(look: ConfigTopicLook, others: Sequence[Counts], advice: tuple[str, ...]) -> None:
    census = look.census
    total = census.total
    console.print(f"{look.topic}: {total.live + total.dead:,} records, read in {look.read_seconds:.1f} s", style="bold")
    kinds = table()
    kinds.add_column("record", no_wrap=True)
    for column in ("live", "bytes", "dead", "bytes"):
        kinds.add_column(column, justify="right")
    for name, kind in sorted(census.kinds.items()):
        kinds.add_row(name, f"{kind.live:,}", f"{kind.live_bytes:,}", f"{kind.dead:,}", f"{kind.dead_bytes:,}")
    console.print(kinds)
    connectors = table()
    connectors.add_column("connector", no_wrap=True)
    for column in ("tasks", "generations", "task count record", "fencing round"):
        connectors.add_column(column, justify="right")
    for name, connector in census.state.connectors.items():
        connectors.add_row(
            name,
            "–" if connector.task_count is None else str(connector.task_count),
            str(census.commits.get(name, 0)),
            "–" if connector.task_count_record is None else str(connector.task_count_record),
            Text("due", "yellow") if connector.pending_fencing else "",
        )
    if census.state.connectors:
        console.print(connectors)
    writers = ", ".join(
        f"{'plain producers' if writer is None else f'producer {writer}'} {count:,}"
        for writer, count in list(census.writers.items())[:5]
    )
    console.print(f"written by {writers or 'nobody'}", soft_wrap=True)
    for each in others:
        console.print(f"{each.topic}: {each.live + each.dead:,} records, {each.dead:,} of them dead", style="bold")
    for one in advice:
        console.print(Text(one, "yellow"), soft_wrap=True)
