"""The declaration of creating and fixing a group's internal topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from airflow_eos_provider.acls.tool_rules import topics_rights
from airflow_eos_provider.changes.change import Change, Done, Plan, option, read_request
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.stored import from_json, to_json

if TYPE_CHECKING:
    from airflow_eos_provider.changes.topics.topics_repair import InternalTopicsClient
    from airflow_eos_provider.connect.connect_session import ConnectSession
    from airflow_eos_provider.connect.topics.topic_checks import TopicChange, TopicFinding, TopicPlan, TopicsLook
    from airflow_eos_provider.journal.group_change import GroupChange


@dataclass(frozen=True, slots=True)
class TopicsRequest:
    """What is said about the topics; it wins over the workers' files."""

    own_topics: tuple[str, ...] = option(
        "Also this topic, the future own topic of a connector; may be repeated.", (), title="Further own topics"
    )
    partitions: int | None = option(
        "Partitions of offsets topics; default: from the workers' files, or 25.", None, title="Partitions", least=1
    )
    replication_factor: int | None = option(
        "Replicas of the topics; default: from the workers' files, or 3.", None, title="Replication factor", least=1
    )


class CreateTopics(Change[TopicsRequest]):
    """Internal topics that are missing or have a wrong setting."""

    name = "topics create"
    title = "Create or fix internal topics"
    summary = "Create missing internal topics and fix settings."
    details = (
        "New topics get the settings that a worker would give them. Nothing is deleted, and no data moves; "
        "problems that it cannot fix are listed with a remedy. If the own topic of a connector is unknown, it applies "
        "the rest and ends with that error."
    )
    request = TopicsRequest
    examples = (
        "eos topics create",
        "eos topics create --plan 3f1c09ab77d2",
        "eos topics create --own-topic orders-offsets --partitions 5",
    )
    dag = "topics_dag"
    rights = (topics_rights,)

    def plan(self, session: ConnectSession, request: TopicsRequest) -> Plan:
        from airflow_eos_provider.changes.topics.topics_repair import InternalTopicsClient
        from airflow_eos_provider.connect.topics.topic_checks import findings, plan_of

        client = InternalTopicsClient(session, **asdict(request))
        look = client.whole_look()
        plan = plan_of(look)
        if not plan.changes:
            client.require_own_topics()
        left = [one for one in findings(look) if not (one.creates or one.mends)]
        named = [str(change.wanted) for change in plan.changes if change.wanted.addresses and not change.creates]
        return Plan(
            self.name,
            look.group_id,
            about=", ".join(change.wanted.name for change in plan.changes),
            question=f"Create or fix {counted(len(plan.changes), 'internal topic')} of Kafka Connect group "
            f"{look.group_id}?",
            lines=(*plan.diff(), *_rest(left, look.not_checked)),
            content=to_json(plan),
            request=asdict(request),
            nothing="" if plan.changes else "No internal topic is missing, and none needs a fix here.",
            needs_hash=f"It changes settings of {', '.join(named)} in another Kafka cluster, which a connector names."
            if named
            else "",
        )

    def apply(self, session: ConnectSession, plan: Plan, act: GroupChange, report: Callable[[str], None]) -> Done:
        client, approved, _, left = self._left(session, plan)
        client.carry_out(left, act)
        return _report(client, approved, client.look())

    def done_before(self, session: ConnectSession, plan: Plan) -> Done | None:
        client, approved, look, left = self._left(session, plan)
        return None if left else _report(client, approved, look)

    def _left(
        self, session: ConnectSession, plan: Plan
    ) -> tuple[InternalTopicsClient, TopicPlan, TopicsLook, tuple[TopicChange, ...]]:
        """What of an approved plan would be planned now, too; the rest of it is done."""
        from airflow_eos_provider.changes.topics.topics_repair import InternalTopicsClient
        from airflow_eos_provider.connect.topics.topic_checks import TopicPlan, plan_of

        approved = from_json(TopicPlan, plan.content)
        client = InternalTopicsClient(session, **asdict(read_request(TopicsRequest, plan.request)))
        look = client.whole_look({name for change in approved.changes for name in change.wanted.connectors})
        now = [change.diff() for change in plan_of(look).changes]
        return client, approved, look, tuple(change for change in approved.changes if change.diff() in now)


CREATE_TOPICS = CreateTopics()


def _report(client: InternalTopicsClient, approved: TopicPlan, look: TopicsLook) -> Done:
    from airflow_eos_provider.connect.topics.topic_checks import findings

    problem = next(iter(client.unknown.values()), None)
    found = findings(look)
    document = {
        "changes": to_json(approved.changes),
        "findings": [one.to_dict() for one in found],
        "not_checked": list(look.not_checked),
    }
    return Done(document, ("Done.", *_rest(found, look.not_checked)), problem)


def _rest(left: Iterable[TopicFinding], not_checked: Iterable[str]) -> Iterator[str]:
    """What is not mended here, and what was not checked."""
    for one in left:
        yield f"Not fixed here: {' '.join(one.lines())}"
    for what in not_checked:
        yield f"Not checked: {what.rstrip('.')}."
