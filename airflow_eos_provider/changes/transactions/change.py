"""The declaration of the end of a hanging transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from airflow_eos_provider.acls.tool_rules import abort_rights
from airflow_eos_provider.changes.change import Change, Done, Plan, option

if TYPE_CHECKING:
    from airflow_eos_provider.changes.transactions.abort import Found
    from airflow_eos_provider.connect.connect_session import ConnectSession


@dataclass(frozen=True, slots=True)
class AbortRequest:
    """Which transaction is ended."""

    topic: str = option("The topic that holds the transaction open, such as orders.", title="Topic")
    partition: int = option("Its partition; they count from 0.", title="Partition", least=0)
    start_offset: int | None = option(
        "The offset of the transaction's first record; needed where several hang in that partition.",
        None,
        title="First offset",
        least=0,
    )
    fence: bool = option(
        "Fence its producer first, where that may be alive: it can write nothing more, and what it does then fails.",
        False,
        title="Shut its producer out",
    )


class Abort(Change[AbortRequest]):
    """The end of one hanging transaction in one partition."""

    name = "transactions abort"
    title = "End a hanging transaction"
    summary = "End a transaction that hangs in one partition, as aborted: its records there are given up for good."
    details = (
        "A transaction hangs if a partition holds it open and no coordinator will end it. Transactions that a "
        "coordinator has open, or that may be alive, are refused. Needs Alter or ClusterAction on the cluster. Takes "
        "no lease, because a roll may be waiting for this transaction to end."
    )
    request = AbortRequest
    examples = (
        "eos transactions abort --topic orders --partition 3",
        "eos transactions abort --topic orders --partition 3 --fence --plan 3f1c09ab77d2",
    )
    dag = "transaction_abort_dag"
    rights = (abort_rights,)
    takes_lease = False

    def plan(self, session: ConnectSession, request: AbortRequest) -> Plan:
        """The end of the transaction that hangs there now."""
        from airflow_eos_provider.changes.transactions.abort import find

        return abort_plan(session.cluster.group_id, request, find(session.kafka, request))

    def apply(self, session: ConnectSession, plan: Plan, act: None, report: Callable[[str], None]) -> Done:
        from airflow_eos_provider.changes.transactions.abort import abort

        return abort(session.kafka, plan.content)


ABORT = Abort()


def abort_plan(group_id: str, request: AbortRequest, found: Found) -> Plan:
    """What was found, as the plan that a person approves."""
    held, place = found.hanging.held, f"{request.topic}-{request.partition}"
    return Plan(
        ABORT.name,
        group_id,
        about=place,
        question=f"End the transaction that hangs in {place}, and give up its records there?",
        lines=tuple(found.lines()),
        content={
            "kafka_cluster_id": found.kafka_cluster_id,
            "topic": held.topic,
            "partition": held.partition,
            "producer_id": held.producer_id,
            "producer_epoch": held.producer_epoch,
            "coordinator_epoch": held.coordinator_epoch,
            "start_offset": held.start_offset,
            "transactional_id": found.hanging.transactional_id,
            "fences": found.fences,
        },
        request=asdict(request),
        needs_hash="records that were written are given up for good.",
    )
