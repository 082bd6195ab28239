"""``eos offsets drop-own``: an own offsets topic that was left behind, given up and deleted on request."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_eos_provider.cli.common import (
    ClusterOption,
    HashOption,
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
from airflow_eos_provider.cli.offsets_change import ConnectorArgument
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.downgrade.drop_own import DropPlan, OwnTopicDropper
from airflow_eos_provider.journal.change import change_journal
from airflow_eos_provider.offsets.seen.copies import Copies
from airflow_eos_provider.output import print_json


def drop_own_(
    connector: ConnectorArgument,
    plan_hash: HashOption = None,
    cluster: ClusterOption = None,
    reason: ReasonOption = "",
    take_over: TakeOverOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete an own offsets topic that is left behind: the connector was run without it. Without --hash: the plan only.

    That is so after a time on Kafka Connect before 3.3, which knows the global topic alone. The connector's
    configuration gives the topic up, then the topic is deleted; it goes on by the global one. Refused while tasks of it
    may read the topic.
    """
    require_enough_digits(plan_hash)
    with ConnectSession(load_cluster(cluster)) as session:
        dropper = OwnTopicDropper(session, "", print_share_read)
        plan = dropper.plan(connector)
        deleted = False
        if plan_hash is not None:
            plan.require(plan_hash)
            group_id = session.cluster.group_id
            journal = change_journal(session.kafka, group_id, actor=actor(), reason=reason, report=report_line)
            deleted = dropper.apply(plan, journal, take_over=take_over)
    if as_json:
        print_json({**plan.to_dict(), "applied": plan_hash is not None, "deleted": deleted})
    elif plan_hash is None:
        _show(plan)
    else:
        what = f"topic {plan.topic} is deleted" if deleted else f"topic {plan.topic} is not deleted"
        console.print(f"{connector} has its offsets in the global topic alone; {what}.", soft_wrap=True)


def _show(plan: DropPlan) -> None:
    for line in plan.lines():
        console.print(line, style={"-": "red"}.get(line[0]), soft_wrap=True, highlight=False)
    command = f"the same command with --hash {plan.short_hash}"
    console.print(f"Nothing is changed yet. To do it: {command}", style="bold", soft_wrap=True)


def left_behind_lines(found: Iterable[Copies]) -> list[str]:
    """What is said of own topics that are left behind, where an upgrade is planned and where offsets are listed."""
    return [
        f"{one.connector}: its own offsets topic {one.own_topic} is older than the global one in "
        f"{counted(one.left, 'source partition')}: an enabled worker delivers once more what came since. "
        f"Before newer workers start: 'eos offsets drop-own {one.connector}'."
        for one in found
    ]
