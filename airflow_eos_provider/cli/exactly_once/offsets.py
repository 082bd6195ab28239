"""``eos offsets``: source offsets in Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from airflow_eos_provider.cli.common import (
    ClusterOption,
    JsonOption,
    console,
    load_cluster,
    print_share_read,
    warn,
)
from airflow_eos_provider.cli.completion import complete_connector
from airflow_eos_provider.cli.examples import examples
from airflow_eos_provider.cli.look import Found, add_look
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.errors import EosError, UnreachableError
from airflow_eos_provider.kafka.admin.partition_writers import Outcome
from airflow_eos_provider.offsets.seen import backup
from airflow_eos_provider.offsets.seen.copies import copies, left_behind_lines
from airflow_eos_provider.offsets.seen.current_offsets import OffsetsLook
from airflow_eos_provider.offsets.seen.difference import Difference, difference, own_from_global
from airflow_eos_provider.offsets.seen.group_offsets import SeenOffset, matching
from airflow_eos_provider.offsets.user_json import parse_where
from airflow_eos_provider.output import Output, OutputOption, print_documents, print_json

offsets_app = typer.Typer(no_args_is_help=True, add_completion=False)


@offsets_app.command(
    "list",
    epilog=examples(
        "eos offsets list",
        'eos offsets list orders --where \'{"filename": "/data/in.txt"}\'',
        "eos offsets list --all -o json",
    ),
)
def list_(
    connector: Annotated[
        str | None,
        typer.Argument(autocompletion=complete_connector, help="One connector; default: every source connector."),
    ] = None,
    cluster: ClusterOption = None,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="JSON", help="Only source partitions with these members, as a JSON object."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also offsets of connectors that do not exist: leftovers of deleted ones.")
    ] = False,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show source offsets as tasks read them, where each is stored, and what Connect's REST API hides. Changes nothing.

    Tasks of a connector with its own offsets topic read that one alone; what only the global one has is marked.
    """
    wanted = parse_where(where)
    with ConnectSession(load_cluster(cluster)) as session:
        look = _look(session)
        found = look.now(connector or "", may_be_gone=everything, unknown=_warn_of_unknown)
    names = [name for name in ([connector] if connector else found.known()) if name in found.connectors]
    shown = {name: matching(found.of(name), wanted) for name in names}
    if everything:
        leftovers = (one for one in found.leftovers() if connector in (None, one.offset.record.key.connector))
        shown["of no connector that exists"] = matching(leftovers, wanted)
    seen = chain.from_iterable(shown.values())
    if print_documents(seen, SeenOffset.to_dict, _key, output, as_json=as_json):
        return
    for title, offsets in shown.items():
        _show(title, offsets, wide=output is Output.WIDE)
        beside = copies(found, title)
        for line in left_behind_lines([beside] if beside and beside.is_left_behind else ()):
            console.print(Text(f"  {line}", "yellow"), soft_wrap=True)


@offsets_app.command(
    "backup", epilog=examples("eos offsets backup --to offsets.jsonl", "eos offsets backup orders --to orders.jsonl")
)
def backup_(
    connector: Annotated[
        str | None,
        typer.Argument(autocompletion=complete_connector, help="One connector; default: all of each topic."),
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", help="The file to write.", show_default=False)] = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write source offsets into a file of JSON lines, byte for byte. Changes nothing in Kafka.

    It has the newest committed record of each key, of the global topic and of connectors' own ones.
    """
    if to is None:
        raise typer.BadParameter("name the file with --to")
    with ConnectSession(load_cluster(cluster)) as session:
        report = _look(session).backup(to, connector or "")
    for name, error in report.unknown.items():
        _warn_of_unknown(name, error)
    if as_json:
        print_json(dict(report.document))
    else:
        topics = ", ".join(topic["name"] for topic in report.document["topics"])
        console.print(
            f"{report.document['records']:,} offsets of {topics} are in {to}, sha256 {report.document['sha256']}",
            soft_wrap=True,
        )
    if report.unknown:
        raise typer.Exit(UnreachableError.exit_code)


@add_look(
    offsets_app,
    "diff",
    "eos offsets diff before.jsonl after.jsonl",
    "eos offsets diff before.jsonl",
    "eos offsets diff --own orders",
)
def diff(
    cluster: Path | None,
    before: Annotated[Path | None, typer.Argument(help="A backup.", show_default=False)] = None,
    after: Annotated[Path | None, typer.Argument(help="A later backup; default: the current offsets in Kafka.")] = None,
    own: Annotated[
        str | None,
        typer.Option(
            "--own",
            autocompletion=complete_connector,
            help="Compare the global topic and the own topic of this connector, instead of backups.",
        ),
    ] = None,
) -> Found:
    """Show which offsets differ. Changes nothing; exit code 1 if some do."""
    if (before is None) == (own is None):
        raise typer.BadParameter("name a backup, or a connector with --own")
    if before is not None:
        first = backup.read(before)
        second = backup.read(after) if after else _now(load_cluster(cluster), _only(first))
        found = difference(first, second)
        of_two_groups = _of_two_groups(first, second)
    else:
        with ConnectSession(load_cluster(cluster)) as session:
            found, of_two_groups = own_from_global(_look(session).now(own or ""), own or ""), ""
    documents = [one.to_dict() for one in found]

    def show(wide: bool) -> None:
        if of_two_groups:
            console.print(of_two_groups, style="yellow", soft_wrap=True)
        _show_differences(found)

    return Found(documents, [one["key"] for one in documents], show, 1 if found else 0)


def _only(saved: backup.Backup) -> str | None:
    return saved.connectors[0] if saved.connectors else None


def _warn_of_unknown(connector: str, error: EosError) -> None:
    warn(f"{connector}: the offsets that its tasks read are not among these. {error.found}")


def _look(session: ConnectSession) -> OffsetsLook:
    session.on_read = print_share_read
    return OffsetsLook(session)


def _now(cluster: ConnectCluster, connector: str | None) -> backup.Backup:
    with ConnectSession(cluster) as session:
        return _look(session).take(connector or "")


def _of_two_groups(first: backup.Backup, second: backup.Backup) -> str:
    """Which ones, if two backups are of two groups."""
    if (first.cluster_id, first.group_id) == (second.cluster_id, second.group_id):
        return ""
    return f"of two groups: {first.group_id} on {first.cluster_id}, {second.group_id} on {second.cluster_id}"


def _show_differences(found: list[Difference]) -> None:
    for one in found:
        document = one.to_dict()
        what = document["key"] if document["connector"] is None else _json(document["partition"])
        before, after = (_json(document[side]) for side in ("before", "after"))
        console.print(
            f"{document['connector'] or '?'}  {document['topic']}-{document['kafka_partition']}", style="bold"
        )
        console.print(f"  {what}: {before} → {after} ({document['change']})", soft_wrap=True)
    console.print(f"{len(found):,} offsets differ." if found else "No offset differs.")


def _key(seen: SeenOffset) -> str:
    return seen.offset.record.key.raw.decode(errors="backslashreplace")


_STYLES = {Outcome.OPEN: "yellow", Outcome.PLAIN: "", Outcome.COMMITTED: ""}


def _show(title: str, offsets: Iterable[SeenOffset], *, wide: bool) -> None:
    console.print(title, style="bold")
    count = 0
    for seen in offsets:
        count += 1
        record = seen.offset.record
        partition = _key(seen) if record.key.connector is None else _json(record.key.partition)
        value = "removed" if record.is_removed else _json(record.offset) if record.offset is not None else "?"
        console.print(f"  {partition} → {value}", soft_wrap=True, style=_STYLES.get(seen.written.outcome, ""))
        console.print(f"    {_where(seen)}", soft_wrap=True, style="dim")
        for why in seen.hidden:
            console.print(Text(f"    REST does not show it: {why}", "yellow"), soft_wrap=True)
        for other in seen.offset.others if wide else ():
            state = "removed" if other.is_removed else _json(other.offset)
            console.print(
                f"    also {other.topic}-{other.kafka_partition}@{other.position}: {state}", soft_wrap=True, style="dim"
            )
    console.print(f"  {counted(count, 'offset')}", style="dim")


def _where(seen: SeenOffset) -> str:
    record, written = seen.offset.record, seen.written
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.timestamp_ms / 1000))
    by = "no transaction" if written.outcome is Outcome.PLAIN else f"{written.outcome}, producer {written.producer_id}"
    own = "own topic" if seen.offset.own else "global topic"
    return f"{own} {record.topic}-{record.kafka_partition}@{record.position}, {since}, {by}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
