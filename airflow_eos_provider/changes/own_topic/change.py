"""The declaration that removes an own offsets topic that an older Kafka Connect left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from airflow_eos_provider.acls.tool_rules import drop_own_rights
from airflow_eos_provider.changes.change import Change, Done, Plan, option
from airflow_eos_provider.stored import from_json, to_json

if TYPE_CHECKING:
    from airflow_eos_provider.changes.own_topic.drop import OwnTopic
    from airflow_eos_provider.connect.connect_session import ConnectSession
    from airflow_eos_provider.journal.group_change import GroupChange


@dataclass(frozen=True, slots=True)
class DropOwnRequest:
    """Whose own topic is removed."""

    connector: str = option(
        "The connector whose own topic is deleted, such as orders.",
        title="Connector",
        argument=True,
        completes="connector",
    )
    offsets_topic: str = option("The workers' offset.storage.topic; default: from their files.", "")


class DropOwn(Change[DropOwnRequest]):
    """The end of an own topic that is left behind."""

    name = "offsets drop-own"
    title = "Remove an own offsets topic that was left behind"
    summary = "Delete a connector's own offsets topic that an older Kafka Connect left behind."
    details = (
        "Kafka Connect before 3.3 knows the global topic only. eos removes the own topic from the connector's "
        "configuration, then deletes it; the connector continues from the global topic. Refused while tasks of the "
        "connector may read it."
    )
    request = DropOwnRequest
    examples = ("eos offsets drop-own orders", "eos offsets drop-own orders --plan 3f1c09ab77d2 --reason CHG-4711")
    dag = "offsets_drop_own_dag"
    rights = (drop_own_rights,)

    def plan(self, session: ConnectSession, request: DropOwnRequest) -> Plan:
        from airflow_eos_provider.changes.own_topic.drop import look_at

        own, left = look_at(session, request.connector, request.offsets_topic)
        return Plan(
            self.name,
            session.cluster.group_id,
            about=own.connector,
            question=f"Take {own.connector} off its own topic {own.topic}?",
            lines=tuple(own.lines(left)),
            content=to_json(own),
            request=asdict(request),
        )

    def apply(
        self, session: ConnectSession, plan: Plan, act: GroupChange | None, report: Callable[[str], None]
    ) -> Done:
        from airflow_eos_provider.changes.own_topic.drop import OwnTopic, configure, delete

        assert act is not None  # it takes the lease
        own = from_json(OwnTopic, plan.content)
        if not act.is_done("configure"):
            with act.step("configure"):
                act.confirm("configure")
                configure(session, own)
        deleted = False
        if own.is_deleted and not act.is_done("delete"):
            with act.step("delete"):
                act.confirm("delete")
                deleted = delete(session, own)
        return _done(own, deleted)

    def done_before(self, session: ConnectSession, plan: Plan) -> Done:
        from airflow_eos_provider.changes.own_topic.drop import OwnTopic

        own = from_json(OwnTopic, plan.content)
        return _done(own, own.is_deleted)

    def takes_up(self, request: DropOwnRequest, unfinished: Plan) -> bool:
        return request.connector == unfinished.about


DROP_OWN = DropOwn()


def _done(own: OwnTopic, deleted: bool) -> Done:
    document = {"deleted": deleted}
    what = "is deleted" if deleted else "is not deleted"
    return Done(document, (f"{own.connector} has its offsets in the global topic only; topic {own.topic} {what}.",))
