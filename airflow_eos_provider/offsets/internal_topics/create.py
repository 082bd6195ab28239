"""Creates and mends a group's internal topics under the group's lease."""

from __future__ import annotations

from airflow_eos_provider.connect.topics.topic_checks import TopicPlan
from airflow_eos_provider.journal.change import group_change
from airflow_eos_provider.journal.journal import Journal, read_journal
from airflow_eos_provider.journal.records import RolloutState
from airflow_eos_provider.kafka.session import Kafka
from airflow_eos_provider.offsets.internal_topics.look import InternalTopicsClient

#: The kind of its changes in the journal.
KIND = "topics create"


def create_topics(
    client: InternalTopicsClient, plan: TopicPlan, journal: Journal, *, approved: str = "", take_over: bool = False
) -> None:
    """Carry a plan out. One that was cut off is begun again, by a plan for what is left.

    :param plan: made a moment ago, by the look of this client.
    :param journal: not acquired yet.
    :param approved: hash of the plan of which this is the rest, for :func:`require_approved_topics`.
    :param take_over: fence a controller though its lease still runs.
    :raises PlanMovedError: a missing topic was created meanwhile; what came before it in the plan is done.
    :raises LeaseHeldError: another controller is at work.
    :raises RefusedError: a roll or another change of the group is not finished.
    :raises FencedError: another controller has taken over.
    :raises ConfigurationError: the principal may not.
    :raises UnreachableError: no broker answers, or they do not take a change over.
    """
    about = ", ".join(change.wanted.name for change in plan.changes) or "nothing left"
    document = {**plan.to_dict(), "approved": approved or plan.hash}
    with group_change(journal, KIND, about, document, take_over=take_over, begins_again=True) as change:
        client.carry_out(plan, permit=change.confirm)


def require_approved_topics(kafka: Kafka, approved: TopicPlan, now: TopicPlan) -> None:
    """Go on only with a plan that was approved, or with what is left of it after it was cut off.

    :param approved: the plan that a person has seen.
    :param now: the plan for what there is now.
    :raises PlanMovedError: it is another one; or the change that was cut off was closed meanwhile.
    """
    changes = [change for change in read_journal(kafka, now.group_id).changes.values() if change.kind == KIND]
    begun = {
        change.state for change in changes if approved.hash in (change.plan.get("hash"), change.plan.get("approved"))
    }
    known = [change.to_dict() for change in approved.changes]
    is_rest = any(state.is_open for state in begun) and all(change.to_dict() in known for change in now.changes)
    is_over = RolloutState.DONE in begun and not now.changes
    if not (is_rest or is_over):
        now.require(approved.hash)
