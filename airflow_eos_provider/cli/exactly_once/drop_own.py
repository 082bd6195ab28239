"""``eos offsets drop-own``: delete an own offsets topic that an older Kafka Connect left behind."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
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
)
from airflow_eos_provider.cli.completion import complete_connector
from airflow_eos_provider.cli.confirm import (
    PlanOption,
    YesOption,
    asks,
    command_of,
    print_applied,
    show_and_ask,
    show_plan,
)
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.downgrade.drop_own import OwnTopicDropper
from airflow_eos_provider.journal.journal import Journal
from airflow_eos_provider.offsets.seen.copies import Copies
from airflow_eos_provider.output import OutputOption, is_for_scripts


@asks
def drop_own_(
    connector: Annotated[
        str, typer.Argument(autocompletion=complete_connector, help="The connector whose own topic is deleted.")
    ],
    plan: PlanOption = None,
    yes: YesOption = False,
    cluster: ClusterOption = None,
    reason: ReasonOption = "",
    take_over: TakeOverOption = False,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a connector's own offsets topic that an older Kafka Connect left behind.

    Kafka Connect before 3.3 knows the global topic only. eos removes the own topic from the connector's configuration,
    then deletes it; the connector continues from the global topic. Refused while tasks of the connector may read it.
    """
    deleted: bool | None = None
    with ConnectSession(load_cluster(cluster)) as session:
        session.on_read = print_share_read
        dropper = OwnTopicDropper(session)
        made = dropper.plan(connector)
        if plan is not None:
            made.require(plan)
        error = show_and_ask(
            partial(show_plan, made.lines(), short_hash=made.short_hash),
            f"Take {connector} off its own topic {made.topic}?",
            command_of(["eos", "offsets", "drop-own", connector], made.short_hash, cluster),
            confirmed=bool(plan or yes),
            for_scripts=is_for_scripts(output, as_json=as_json),
        )
        if error is None:
            group_id = session.cluster.group_id
            journal = Journal(session.kafka, group_id, actor=actor(), reason=reason, report=report_line)
            deleted = dropper.apply(made, journal, take_over=take_over)
    done = _report(deleted)
    if not print_applied(made.to_dict(), made.short_hash, done, output, as_json=as_json) and deleted is not None:
        what = "is deleted" if deleted else "is not deleted"
        console.print(
            f"{connector} has its offsets in the global topic only; topic {made.topic} {what}.", soft_wrap=True
        )
    if error is not None:
        raise error


def _report(deleted: bool | None) -> dict[str, bool] | None:
    return None if deleted is None else {"deleted": deleted}


def left_behind_lines(found: Iterable[Copies]) -> list[str]:
    """A warning of each own topic that is left behind."""
    return [
        f"{one.connector}: its own offsets topic {one.own_topic} is older than the global one in "
        f"{counted(one.left, 'source partition')}: an enabled worker would deliver newer records again. "
        f"Before newer workers start: 'eos offsets drop-own {one.connector}'."
        for one in found
    ]
