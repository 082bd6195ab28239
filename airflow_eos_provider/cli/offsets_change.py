"""``eos offsets alter|reset|restore|migrate|prune``: a plan first, then by its hash or ``--yes`` the change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from airflow_eos_provider.cli.common import (
    ClusterOption,
    JsonOption,
    ReasonOption,
    TakeOverOption,
    actor,
    console,
    load_cluster,
    print_share_read,
    report_line,
    require_enough_digits,
)
from airflow_eos_provider.cli.completion import complete_connector
from airflow_eos_provider.cli.confirm import PlanOption, YesOption
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.connect.topics.internal_topics import CONFIGS, OFFSETS, own_topic_name, read_worker_files
from airflow_eos_provider.errors import EosError, PlanMovedError
from airflow_eos_provider.journal.change import change_journal
from airflow_eos_provider.offsets.seen import backup
from airflow_eos_provider.offsets.seen.group import parse_where
from airflow_eos_provider.offsets.seen.leftovers import Leftovers
from airflow_eos_provider.offsets.verbs import changes
from airflow_eos_provider.offsets.verbs.apply import OffsetsChanger
from airflow_eos_provider.offsets.verbs.plan import OffsetsPlan
from airflow_eos_provider.offsets.verbs.request import OffsetsRequest, Verb
from airflow_eos_provider.output import print_json

#: Lines of a plan that are shown; the JSON has all.
_SHOWN = 60

ConnectorArgument = Annotated[
    str, typer.Argument(autocompletion=complete_connector, help="The connector whose offsets are changed.")
]
WhereOption = Annotated[
    str | None,
    typer.Option("--where", metavar="JSON", help="Only source partitions with these members, as a JSON object."),
]
AbsentOption = Annotated[
    bool, typer.Option("--absent", help="The connector need not exist: it is created later, and starts there.")
]


def reset_(
    connector: ConnectorArgument,
    where: WhereOption = None,
    plan: PlanOption = None,
    yes: YesOption = False,
    cluster: ClusterOption = None,
    reason: ReasonOption = "",
    take_over: TakeOverOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove a connector's offsets: it starts from the beginning. Without --plan or --yes: show the plan only.

    The connector is stopped, its transactional ids are fenced, the records are written in one transaction and read
    back, and the connector gets its former state again. Its tasks are then watched for a moment: exit code 1 if one
    fails. If the command is killed, run it again to resume.
    """
    _Command(plan, yes, cluster, reason, take_over, as_json).run(
        OffsetsRequest(Verb.RESET, connector, where=parse_where(where))
    )


def alter_(
    connector: ConnectorArgument,
    file: Annotated[
        Path | None, typer.Option("--file", help="JSON with the offsets, as PATCH /connectors/<name>/offsets takes it.")
    ] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", metavar="JSON", help="One source partition, as a JSON object.")
    ] = None,
    offset: Annotated[
        str | None, typer.Option("--offset", metavar="JSON", help="Its offset, as a JSON object; null to remove it.")
    ] = None,
    where: WhereOption = None,
    each: Annotated[
        bool, typer.Option("--all", help="Set this offset for every source partition that has one.")
    ] = False,
    unlike: Annotated[
        bool,
        typer.Option(
            "--unlike",
            help="Also an offset whose members, types or source partition differ from the connector's present ones.",
        ),
    ] = False,
    absent: AbsentOption = False,
    plan: PlanOption = None,
    yes: YesOption = False,
    cluster: ClusterOption = None,
    reason: ReasonOption = "",
    take_over: TakeOverOption = False,
    as_json: JsonOption = False,
) -> None:
    """Give source partitions other offsets. Without --plan or --yes: show the plan, change nothing.

    --file has several offsets. --offset is for the source partition of --partition, for each match of --where, or for
    --all. An offset is written under the key that the connector's tasks look for, regardless of its spelling. The
    connector checks the new offsets first. The other steps are the same as in 'eos offsets reset'.
    """
    chosen = [file is not None, partition is not None, where is not None, each]
    if chosen.count(True) != 1 or (file is None) != (offset is not None):
        raise typer.BadParameter("name the offsets with --file; or --offset and one of --partition, --where and --all")
    if where is not None and not parse_where(where):
        raise typer.BadParameter("--where is empty: say --all for every source partition")
    if file is not None:
        wanted = changes.read_wanted(file)
    elif partition is not None:
        wanted = [changes.parse_wanted(partition, offset or "")]
    else:
        wanted = [changes.Wanted(None, changes.parse_offset(offset or ""))]
    _Command(plan, yes, cluster, reason, take_over, as_json).run(
        OffsetsRequest(
            Verb.ALTER,
            connector,
            where=parse_where(where),
            wanted=tuple(wanted),
            each=each or where is not None,
            unlike=unlike,
            absent=absent,
        )
    )


def restore_(
    connector: Annotated[
        str,
        typer.Argument(
            metavar="[CONNECTOR]", autocompletion=complete_connector, help="The connector; none with --all."
        ),
    ],
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", show_default=False, help="A file that 'eos offsets backup' wrote.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="CONNECTOR",
            autocompletion=complete_connector,
            help="Take the offsets of this connector, of the group or of the backup; it may be deleted.",
        ),
    ] = None,
    each: Annotated[
        bool, typer.Option("--all", help="Every connector with offsets in the backup, one after the other.")
    ] = False,
    from_elsewhere: Annotated[
        bool,
        typer.Option(
            "--from-elsewhere", help="Even if the backup is from another group, Kafka cluster or topic of that name."
        ),
    ] = False,
    absent: AbsentOption = False,
    plan: PlanOption = None,
    yes: YesOption = False,
    cluster: ClusterOption = None,
    reason: ReasonOption = "",
    take_over: TakeOverOption = False,
    as_json: JsonOption = False,
) -> None:
    """Set a connector's offsets from a backup, or from another connector. Without --plan or --yes: plan only.

    Offsets that came after the backup are removed. With --from, the other connector keeps its offsets; with --from and
    FILE, the backup may be of another group. The steps are the same as for 'eos offsets reset'. With --all, every plan
    is made before the first connector is stopped, and nothing changes if one is refused.
    """
    if source is not None and not each:
        _Command(plan, yes, cluster, reason, take_over, as_json).run(
            OffsetsRequest(
                Verb.COPY, connector, source=source, file=str(file.absolute()) if file else "", absent=absent
            )
        )
        return
    if each == (file is not None):
        raise typer.BadParameter("name a connector and a backup; --all and a backup; or a connector and --from")
    if each and plan is not None:
        raise typer.BadParameter("a hash is of one connector: name it")
    saved = (file or Path(connector)).absolute()
    command = _Command(plan, yes, cluster, reason, take_over, as_json)

    def request(name: str) -> OffsetsRequest:
        return OffsetsRequest(Verb.RESTORE, name, file=str(saved), from_elsewhere=from_elsewhere, absent=absent)

    if each:
        _restore_all(command, saved, request)
    else:
        command.run(request(connector))


def _restore_all(command: _Command, saved: Path, request: Callable[[str], OffsetsRequest]) -> None:
    names, gone = command.existing(backup.read(saved).connectors_with_offsets())
    if gone:
        console.print(f"Skipped, because they do not exist: {', '.join(gone)}.", soft_wrap=True)
    if not names:
        console.print("Nothing to do: the backup has no offset of a connector that exists.")
    if command.yes:
        command.require_possible([request(name) for name in names])
    for index, name in enumerate(names):
        try:
            command.run(request(name), f"eos offsets restore {name} {saved}")
        except EosError as error:
            done = f"restored: {', '.join(names[:index])}; " if index else ""
            report_line(f"{name}: see the error. {done}not begun: {', '.join(names[index + 1 :]) or 'none'}.")
            report_line("Restore the rest by name: --all would also restore the finished ones again.")
            raise error


def prune_(
    connector: Annotated[
        str | None, typer.Argument(help="One deleted connector; default: every deleted connector that left offsets.")
    ] = None,
    plan: PlanOption = None,
    yes: YesOption = False,
    cluster: ClusterOption = None,
    reason: ReasonOption = "",
    take_over: TakeOverOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove the offsets of deleted connectors. Otherwise a new connector of the same name would continue from them.

    Without --plan or --yes: show the plans, and other leftovers of such connectors; change nothing. Transactions that
    they left open are ended. Only the global topic is searched. If no connector names an own topic any longer, delete
    the topic with Kafka's own tools.
    """
    if connector is None and plan is not None:
        raise typer.BadParameter("a hash is of one connector: name it")
    command = _Command(plan, yes, cluster, reason, take_over, as_json)
    if connector is not None:
        command.run(OffsetsRequest(Verb.PRUNE, connector))
        return
    removable, left = command.left()
    if not removable:
        console.print("Nothing to do: every offset belongs to a connector that exists.")
    for name in removable:
        command.run(OffsetsRequest(Verb.PRUNE, name), f"eos offsets prune {name}")
    if not (yes or as_json):
        _show_what_stays(left.values())


def _show_what_stays(left: Iterable[Leftovers]) -> None:
    """What deleted connectors have left besides their offsets."""
    if not (lines := [f"  {each.connector}: {line}" for each in left for line in each.lines()]):
        return
    console.print("Deleted connectors have also left:")
    for line in lines[:_SHOWN]:
        console.print(line, soft_wrap=True, highlight=False)
    if len(lines) > _SHOWN:
        console.print(f"  … and {len(lines) - _SHOWN:,} more.")


class Whose(StrEnum):
    """Which topic is to have a connector's offsets."""

    OWN = "own"
    GLOBAL = "global"


def migrate_(
    connector: ConnectorArgument,
    to: Annotated[Whose, typer.Option("--to", help="Into a topic of its own, or into the workers' global one.")],
    topic: Annotated[
        str | None,
        typer.Option("--topic", help="The topic of its own; default: <group>-<connector>-offsets."),
    ] = None,
    plan: PlanOption = None,
    yes: YesOption = False,
    cluster: ClusterOption = None,
    reason: ReasonOption = "",
    take_over: TakeOverOption = False,
    as_json: JsonOption = False,
) -> None:
    """Move a connector's offsets into a topic of its own, or back. Without --plan or --yes: show the plan only.

    The topic is created where it is missing; the connector's offsets.storage.topic is changed while it is stopped. The
    other steps are those of 'eos offsets reset'.
    """
    if to is Whose.GLOBAL and topic is not None:
        raise typer.BadParameter("--topic names a topic of its own: use it with --to own")

    command = _Command(plan, yes, cluster, reason, take_over, as_json)
    own = topic or own_topic_name(load_cluster(cluster).group_id, connector)
    command.run(OffsetsRequest(Verb.MIGRATE, connector, own_topic=own if to is Whose.OWN else ""))


@dataclass(frozen=True, slots=True)
class _Command:
    """What the verbs have in common."""

    plan_hash: str | None
    yes: bool
    cluster: Path | None
    reason: str
    take_over: bool
    as_json: bool

    def run(self, request: OffsetsRequest, command: str = "the same command") -> None:
        """Show the plan, or carry it out.

        :param command: that carries it out by a hash.
        """
        require_enough_digits(self.plan_hash)
        with self._changer() as (session, changer):
            what = f"{request.verb} {request.connector}"
            unfinished = changer.unfinished(request)
            plan = unfinished or changer.plan(request)
            if not (self.yes or self.plan_hash):
                self._show(plan, command, is_unfinished=unfinished is not None)
                return
            if self.plan_hash and not plan.hash.startswith(self.plan_hash):
                last = f", last by {plan.last_change}" if plan.last_change else ""
                raise PlanMovedError(
                    f"The plan of 'eos offsets {what}' is {plan.short_hash}, and not {self.plan_hash}: the "
                    f"connector or its offsets were changed since{last}, or another change was asked for.",
                    remedy="Run it without --plan to see the new plan.",
                )
            journal = change_journal(
                session.kafka, session.cluster.group_id, actor=actor(), reason=self.reason, report=report_line
            )
            report = changer.apply(plan, journal, take_over=self.take_over)
        if self.as_json:
            print_json(report.to_dict())
        elif plan.nothing_to_do:
            console.print(f"Nothing to do: the offsets of {request.connector} are as asked for.")
        else:
            ended = f", the transaction of {', '.join(plan.ended)} ended" if plan.ended else ""
            console.print(f"{what}: done, {report.written:,} records written{ended} ({report.change_id}).")
        if report.problem:
            raise report.problem

    def left(self) -> tuple[list[str], dict[str, Leftovers]]:
        """The deleted connectors that have left what a prune removes, and what all deleted ones have left.

        One whose prune was begun and not finished comes first: it may have nothing left but that.
        """
        with self._changer() as (_, changer):
            left = changer.leftovers()
            begun = changer.begun(Verb.PRUNE)
            return list(dict.fromkeys([*begun, *changer.deleted(left)])), left

    def existing(self, names: Iterable[str]) -> tuple[list[str], list[str]]:
        """These names: those of connectors that exist, and the others."""
        with self._changer() as (_, changer):
            found = changer.existing()
        wanted = list(names)
        return [name for name in wanted if name in found], [name for name in wanted if name not in found]

    def require_possible(self, requests: Iterable[OffsetsRequest]) -> None:
        """Go on only if each of these can be planned, and no change is unfinished.

        :raises EosError: one cannot.
        """
        with self._changer() as (_, changer):
            changer.require_no_open_change()
            for request in requests:
                changer.plan(request)

    @contextmanager
    def _changer(self) -> Iterator[tuple[ConnectSession, OffsetsChanger]]:
        described = load_cluster(self.cluster)
        files = read_worker_files(described)
        names = files.common(CONFIGS, None), files.common(OFFSETS, None)
        with ConnectSession(described) as session:
            yield session, OffsetsChanger(session, *names, report=report_line, progress=print_share_read)

    def _show(self, plan: OffsetsPlan, command: str, *, is_unfinished: bool) -> None:
        if self.as_json:
            print_json({**plan.to_dict(), "nothing_to_do": plan.nothing_to_do, "unfinished": is_unfinished})
            return
        lines = plan.lines()
        for line in lines[:_SHOWN]:
            console.print(line, soft_wrap=True, highlight=False)
        if len(lines) > _SHOWN:
            console.print(f"  … and {len(lines) - _SHOWN:,} more; --json has all.")
        if plan.nothing_to_do:
            console.print("Nothing to do.")
            return
        begun = "It was begun and not finished" if is_unfinished else "Nothing is changed yet"
        console.print(f"{begun}. To do it: {command} with --plan {plan.short_hash}", style="bold", soft_wrap=True)
