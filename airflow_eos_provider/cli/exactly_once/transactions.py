"""``eos transactions``: lists, describes and audits transactions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from airflow_eos_provider.cli.common import (
    ExitCodeOption,
    console,
    load_cluster,
    report_line,
    show_answer,
    table,
    timeout_option,
    watch_option,
)
from airflow_eos_provider.cli.completion import complete_connector
from airflow_eos_provider.cli.exactly_once.transactions_watch import TopicsOption, watch_
from airflow_eos_provider.cli.look import Found, add_look
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.data_text import counted, duration, sentence
from airflow_eos_provider.errors import ConfigurationError, RolloutPausedError
from airflow_eos_provider.kafka.admin.client import Place
from airflow_eos_provider.output import Output
from airflow_eos_provider.transactions.audit import DEFAULT_LIMITS, Limits, idle_ids, live_ids
from airflow_eos_provider.transactions.auditor import Auditor
from airflow_eos_provider.transactions.hanging import HangingLook
from airflow_eos_provider.transactions.known_ids import (
    Filter,
    KnownId,
    id_expiration_seconds,
    named_ids,
)
from airflow_eos_provider.transactions.readable_ends import EndsOrWhy, PartitionEnds, ends_document, ends_of
from airflow_eos_provider.transactions.readers import ReadersLook, hanging_document, readers_of, sink_groups
from airflow_eos_provider.transactions.scope import Scope, connectors_of

#: So many partitions are named; the JSON has all.
_SHOWN = 3

transactions_app = typer.Typer(no_args_is_help=True, add_completion=False)


@add_look(
    transactions_app,
    "list",
    "eos transactions list",
    "eos transactions list --open --all",
    "eos transactions list --hanging --exit-code  # 1 if a transaction hangs",
    "eos transactions list --watch 5 --timeout 600 -o json",
)
def list_(
    cluster: Path | None,
    output: Output | None,
    connector: Annotated[
        str | None,
        typer.Option("--connector", autocompletion=complete_connector, help="Only tasks of this connector."),
    ] = None,
    topics: TopicsOption = None,
    open_only: Annotated[bool, typer.Option("--open", help="Only open transactions.")] = False,
    hanging: Annotated[
        bool, typer.Option("--hanging", help="Transactions that a partition holds open and no coordinator knows.")
    ] = False,
    watch: Annotated[float | None, watch_option("Check this often, and print what changes.")] = None,
    timeout: Annotated[float | None, timeout_option("With --watch: end after this time.")] = None,
    longer_than: Annotated[
        float,
        typer.Option(
            "--longer-than",
            min=0.0,
            metavar="SECONDS",
            help="With --watch: report transactions that are open for longer.",
        ),
    ] = 30.0,
    everyone: Annotated[bool, typer.Option("--all", help="The whole Kafka cluster, not only this group.")] = False,
    exit_code: ExitCodeOption = False,
) -> Found:
    """Show transactional IDs with owner, state and age; with --hanging, transactions that nobody will end.

    Changes nothing. Consumers that read committed wait forever behind a hanging transaction. --hanging needs Read on
    the topics (without --topic: on all topics) and Describe on all transactional IDs and on __transaction_state. With
    --exit-code, a hanging transaction ends the command with 1, an incomplete answer with 5.
    """
    described = load_cluster(cluster)
    if watch is not None:
        watch_(described, watch, timeout, longer_than, connector, topics, everyone, as_json=output is Output.JSON)
    if hanging:
        return _hanging(described, topics, exit_code=exit_code)
    wanted = Filter(everyone=everyone, connector=connector or "", topics=tuple(topics or ()), open_only=open_only)
    with ConnectSession(described) as session:
        scope = Scope(session, None, report=report_line)
        state = scope.state()
        found = scope.ids(wanted, state)
        expiration = id_expiration_seconds(session.kafka)
    now = time.time()

    def show(wide: bool) -> None:
        _show_ids(found, now, wide=wide)
        live = live_ids(described.group_id, state) if state else {}
        for finding in idle_ids(found, live, expiration, now, DEFAULT_LIMITS):
            console.print(f"{sentence(finding.found)} {sentence(finding.remedy)}", style="yellow", soft_wrap=True)

    return Found([one.to_dict(now) for one in found], [one.id for one in found], show)


def _show_ids(found: Sequence[KnownId], now: float, *, wide: bool) -> None:
    if not found:
        console.print("The brokers know no transactional id of that kind.")
        return
    more = ("timeout", "last began", "producer") if wide else ()
    shown = table("", "transactional id", "of", "state", "open for", *more, "in")
    for one in found:
        cells = (
            f"{one.description.timeout_ms / 1000:g} s",
            _ago(one.idle_seconds(now)),
            f"{one.description.producer_id}/{one.description.producer_epoch}",
        )
        shown.add_row(
            one.id,
            one.owner.text,
            str(one.description.state),
            _seconds(one.open_seconds(now)) + (" (overdue)" if one.is_overdue(now) else ""),
            *(cells if wide else ()),
            _places(one.description.partitions),
        )
    console.print(shown)


@add_look(transactions_app, "describe", "eos transactions describe connect-orders-jdbc-0")
def describe(
    cluster: Path | None, ids: Annotated[list[str], typer.Argument(metavar="ID…", help="Transactional ids.")]
) -> Found:
    """Show transactional ids with the partitions of their open transactions, and how many offsets wait there.

    Exit code 2 if the brokers do not know one of them.
    """
    described = load_cluster(cluster)
    with ConnectSession(described) as session:
        scope = Scope(session, None, report=report_line)
        state = scope.state()
        found = named_ids(session.kafka, described.group_id, connectors_of(state), ids, scope.others())
        ends = ends_of(session.kafka, [place for one in found for place in one.description.partitions])
        readers = readers_of(session.kafka, ends, sink_groups(state))
    now = time.time()
    missing = sorted(set(ids) - {one.id for one in found})
    error = ConfigurationError(
        f"The brokers know no transactional id {', '.join(missing)}.",
        remedy="See 'eos transactions list'. The brokers forget an id that is not used, after 7 days by default.",
    )

    def show(wide: bool) -> None:
        for one in found:
            _show_described(one, ends, readers, now)
        _show_unseen(readers)

    documents = [_described(one, ends, readers, now) for one in found]
    return Found(documents, [one.id for one in found], show, error=error if missing else None)


def _show_described(one: KnownId, ends: Mapping[Place, EndsOrWhy], readers: ReadersLook, now: float) -> None:
    known = one.description
    console.print(f"{one.id}: {one.owner.text}", style="bold", soft_wrap=True)
    console.print(f"  state {known.state}, producer {known.producer_id}, epoch {known.producer_epoch}")
    opened = one.open_seconds(now)
    console.print(
        f"  open for {_seconds(opened)}, timeout {known.timeout_ms / 1000:g} s"
        if opened is not None
        else "  no transaction is open"
    )
    for place in known.partitions:
        there = ends[place]
        console.print(
            f"  {place[0]}-{place[1]}: {there if isinstance(there, str) else _waiting(there)}", soft_wrap=True
        )
        _show_readers(readers, place, "    ")


def _show_readers(readers: ReadersLook, place: Place, indent: str) -> None:
    for reader in readers.at(place):
        console.print(f"{indent}{reader.words}", soft_wrap=True)


def _show_unseen(readers: ReadersLook) -> None:
    for why in readers.unknown:
        console.print(f"The list of waiting readers may be incomplete: {why}", style="yellow", soft_wrap=True)


def _hanging(described: ConnectCluster, topics: list[str] | None, *, exit_code: bool) -> Found:
    with ConnectSession(described) as session:
        look = Scope(session, None, topics or ()).hanging()
        ends = ends_of(session.kafka, [one.held.place for one in look.hanging])
        readers = readers_of(session.kafka, ends, {})
    names = [f"{one.held.topic}-{one.held.partition}" for one in look.hanging]
    code = 1 if look.hanging else 0 if look.is_whole else RolloutPausedError.exit_code
    return Found(
        hanging_document(look, ends, readers),
        names,
        lambda wide: _show_hanging(look, ends, readers),
        code if exit_code else 0,
    )


@add_look(
    transactions_app,
    "audit",
    "eos transactions audit",
    "eos transactions audit --beside other-cluster --days-before 3",
)
def audit(
    cluster: Path | None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            "--beside",
            metavar="NAME|PATH",
            help="Another Connect cluster of the same Kafka cluster, with its topics in its workers' files; may be "
            "repeated.",
        ),
    ] = None,
    topics: TopicsOption = None,
    longer_than: Annotated[
        float | None,
        typer.Option(
            "--longer-than", min=0.0, metavar="SECONDS", help="Open for longer is a finding. Default: its timeout."
        ),
    ] = None,
    idle_part: Annotated[
        float,
        typer.Option(
            "--idle-part", min=0.01, max=1.0, help="Warn after this part of transactional.id.expiration.ms without use."
        ),
    ] = DEFAULT_LIMITS.idle_part,
    days_before: Annotated[
        float,
        typer.Option(
            "--days-before",
            min=0.0,
            help="Or this many days before it ends, whichever comes first; never in its first half.",
        ),
    ] = DEFAULT_LIMITS.days_before,
) -> Found:
    """Look for hanging and overdue transactions, lost markers, ids near their expiration, collisions. Changes nothing.

    On the whole Kafka cluster; for ids near their expiration, only this group's tasks. --topic limits the search for
    hanging transactions, for example to topics that you may read. Exit code 1 if something is found, or 5 if something
    could not be checked.
    """
    limits = Limits(longer_than, idle_part, days_before)
    others = [load_cluster(each) for each in beside or ()]
    with Auditor(load_cluster(cluster), beside=others, topics=topics or (), limits=limits) as auditor:
        found = auditor.look()
    names = list(dict.fromkeys(finding.subject for finding in found.findings))
    verdict = found.verdict
    return Found(found.to_dict(), names, lambda wide: show_answer(found.describe(), verdict), verdict.exit_code)


def _show_hanging(look: HangingLook, ends: Mapping[Place, EndsOrWhy], readers: ReadersLook) -> None:
    for one in look.hanging:
        held, there = one.held, ends[one.held.place]
        who = one.transactional_id or f"producer {held.producer_id}, which no coordinator knows"
        console.print(
            f"{held.topic}-{held.partition} holds a transaction of {who} open since offset {held.start_offset}: "
            f"{there if isinstance(there, str) else _waiting(there)}. {sentence(one.how_to_end)}",
            soft_wrap=True,
        )
        _show_readers(readers, held.place, "  ")
    _show_unseen(readers)
    for held in look.unseen:
        console.print(
            f"{held.topic}-{held.partition} holds one of producer {held.producer_id} open since offset "
            f"{held.start_offset}, which no coordinator has reported; but not all could be asked: alive, or hanging.",
            style="yellow",
            soft_wrap=True,
        )
    if look.unknown:
        some = list(look.unknown.items())[:_SHOWN]
        why = ", ".join(f"{topic}-{partition}: {reason}" for (topic, partition), reason in some)
        more = " …" if len(look.unknown) > _SHOWN else ""
        console.print(f"Not checked: {counted(len(look.unknown), 'partition')}: {why}{more}", soft_wrap=True)
    if look.hidden:
        console.print(
            f"Not checked: {look.hidden}; name the topics that matter with --topic.", style="yellow", soft_wrap=True
        )
    if not look.hanging and look.is_whole:
        console.print("No transaction hangs.")


def _described(one: KnownId, ends: Mapping[Place, EndsOrWhy], readers: ReadersLook, now: float) -> dict[str, Any]:
    partitions = [
        {
            "topic": topic,
            "partition": partition,
            **ends_document(ends[topic, partition]),
            "readers": [reader.to_dict() for reader in readers.at((topic, partition))],
        }
        for topic, partition in one.description.partitions
    ]
    return {**one.to_dict(now), "partitions": partitions, "readers_unknown": list(readers.unknown)}


def _waiting(ends: PartitionEnds) -> str:
    return f"readable to {ends.stable:,} of {ends.end:,}, {ends.waiting:,} offsets wait"


def _places(places: Sequence[tuple[str, int]]) -> str:
    shown = ", ".join(f"{topic}-{partition}" for topic, partition in places[:_SHOWN])
    return f"{shown} and {len(places) - _SHOWN} more" if len(places) > _SHOWN else shown or "–"


def _ago(seconds: float | None) -> str:
    return "–" if seconds is None else f"{_seconds(seconds)} ago"


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else duration(seconds)
