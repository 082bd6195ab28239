"""The declaration of fencing rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from airflow_eos_provider.acls.tool_rules import fencing_rights
from airflow_eos_provider.changes.change import Change, Done, Look, Plan, option, read_request
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.stored import from_json, to_json

if TYPE_CHECKING:
    from airflow_eos_provider.changes.fencing.fencing_facts import ConnectorLook, FenceId, FenceLook
    from airflow_eos_provider.changes.fencing.fencing_plan import Decision
    from airflow_eos_provider.changes.fencing.round import Round
    from airflow_eos_provider.connect.cluster.description import ConnectCluster
    from airflow_eos_provider.connect.connect_session import ConnectSession
    from airflow_eos_provider.journal.group_change import GroupChange

#: Of a connector with more ids only those are shown that have a transaction open, unless all are wanted.
_SHOWN_IDS = 10

#: A worker restarts a task within its own time for a stop, 5 s by default, and answers then.
_ANSWER_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class FencingRequest:
    """Which rounds are wanted."""

    connectors: tuple[str, ...] = option(
        "Source connectors; default: all. For connectors that you name, open transactions of running tasks are "
        "ended, too: these tasks fail and are restarted.",
        (),
        title="Connectors",
        argument=True,
        completes="connector",
    )
    pending: bool = option(
        "Only connectors whose fencing round is due or has failed.", False, title="Pending rounds only"
    )
    config_topic: str = option("The workers' config.storage.topic; default: from their files.", "")
    timeout: float = option(
        "How long to wait for Connect's own round and for its tasks.", 180.0, metavar="SECONDS", least=1.0, looks=False
    )


class Fencing(Change[FencingRequest]):
    """Fencing rounds of source connectors (KIP-618)."""

    name = "fencing apply"
    title = "Fence connectors"
    summary = "Fence zombie tasks of source connectors, and have Connect finish its fencing rounds."
    details = (
        "Fences the transactional ids in bulk, asks Connect to restart the tasks, and waits for its task count records."
    )
    request = FencingRequest
    examples = (
        "eos fencing apply orders --reason CHG-4711",
        "eos fencing apply --pending --yes  # for scripts: every round that is due or has failed",
    )
    dag = "fence_dag"
    rights = (fencing_rights,)
    rows = "connectors"
    filters = ("connector", "pending_fencing")
    list_summary = "Show the fencing of source connectors, and what a round would do. Changes nothing."
    list_examples = ("eos fencing list", "eos fencing list orders -o wide  # with every transactional id")

    def session(self, cluster: ConnectCluster) -> ConnectSession:
        from airflow_eos_provider.connect.connect_session import ConnectSession

        return ConnectSession(cluster, answer_seconds=_ANSWER_SECONDS)

    def plan(self, session: ConnectSession, request: FencingRequest) -> Plan:
        return fencing_plan(*self._decide(session, request), request)

    def apply(self, session: ConnectSession, plan: Plan, act: GroupChange, report: Callable[[str], None]) -> Done:
        return Done.of_connectors([round_.carry_out(act) for round_ in self._rounds(session, plan, report)])

    def done_before(self, session: ConnectSession, plan: Plan) -> Done | None:
        """The report of a plan that was carried out, unless something is due again."""
        _, decision = self._decide(session, read_request(FencingRequest, plan.request))
        rounds = self._rounds(session, plan)
        if decision.due or any(round_.has_failed_tasks for round_ in rounds):
            return None
        return Done.of_connectors([round_.report() for round_ in rounds])

    def look(self, session: ConnectSession, request: FencingRequest) -> Look:
        """The rounds that are due, and the transactions that are open."""
        from airflow_eos_provider.journal.journal import read_journal

        seen, decision = self._decide(session, request)
        plan = fencing_plan(seen, decision, request)
        begun = read_journal(session.kafka, plan.group_id).open_change
        document = {
            **look_document(seen, decision),
            "hash": None if plan.nothing else plan.hash,
            "unfinished": begun.plan.get("hash") if begun is not None and begun.kind == self.name else None,
        }
        return Look(
            document,
            [round_.connector for round_ in decision.due],
            lambda whole: look_lines(seen, decision, whole=whole),
        )

    def _decide(self, session: ConnectSession, request: FencingRequest) -> tuple[FenceLook, Decision]:
        from airflow_eos_provider.changes.fencing.fencing_facts import look
        from airflow_eos_provider.changes.fencing.fencing_plan import decide

        seen = look(session, _config_topic(session, request.config_topic), request.connectors)
        return seen, decide(seen, named=bool(request.connectors), pending_only=request.pending)

    def _rounds(
        self, session: ConnectSession, plan: Plan, report: Callable[[str], None] = lambda line: None
    ) -> list[Round]:
        from airflow_eos_provider.changes.fencing.fencing_plan import ConnectorRound
        from airflow_eos_provider.changes.fencing.round import Round

        topic = _config_topic(session, plan.request["config_topic"])
        rounds = from_json(tuple[ConnectorRound, ...], plan.content["rounds"])
        return [Round(session, topic, each, plan.request["timeout"], report) for each in rounds]


def _config_topic(session: ConnectSession, given: str) -> str:
    from airflow_eos_provider.connect.topics.internal_topics import CONFIGS, read_worker_files

    return read_worker_files(session.cluster).common(CONFIGS, given)


FENCING = Fencing()


def fencing_plan(seen: FenceLook, decision: Decision, request: FencingRequest) -> Plan:
    """What was decided, as the plan that a person approves."""
    due, nothing = decision.due, ""
    if not due:
        nothing = decision.unused or "No round is pending, and no transaction is held open."
    return Plan(
        FENCING.name,
        seen.group_id,
        about=", ".join(round_.connector for round_ in due),
        question=f"Fence {counted(len(due), 'connector')} of Kafka Connect group {seen.group_id}?",
        lines=tuple(line for round_ in due or decision.rounds for line in round_.lines()),
        content={"kafka_cluster_id": seen.kafka_cluster_id, "rounds": to_json(due)},
        request=asdict(request),
        nothing=nothing,
    )


def look_document(seen: FenceLook, decision: Decision) -> dict[str, Any]:
    """A look and what would be done, as JSON. Scripts rely on the names."""
    rounds = {round_.connector: round_ for round_ in decision.rounds}
    return {
        "group_id": seen.group_id,
        "kafka_cluster_id": seen.kafka_cluster_id,
        "at": seen.at,
        "workers_enabled": dict(seen.enabled),
        "unused": decision.unused or None,
        "connectors": [
            {
                "connector": each.name,
                "target_state": each.state.target_state,
                "pending_fencing": each.state.pending_fencing,
                "task_count_record": each.state.task_count_record,
                "task_count_record_offset": each.state.task_count_record_offset,
                "tasks": each.state.task_count,
                "task_configs_offset": each.state.commit_offset,
                "why": rounds[each.name].why,
                "fence": list(rounds[each.name].fence),
                "restart": list(rounds[each.name].restart),
                "running": list(rounds[each.name].running),
                "awaits_record": rounds[each.name].awaits_record,
                "ids": [_id_document(one) for one in each.ids],
            }
            for each in seen.connectors
            if each.name in rounds
        ],
        "nothing_to_do": not decision.due,
    }


def _id_document(one: FenceId) -> dict[str, Any]:
    known = one.known
    return {
        "id": one.transactional_id,
        "task": one.number,
        "state": str(known.state) if known else None,
        "producer_id": known.producer_id if known else None,
        "producer_epoch": known.producer_epoch if known else None,
        "timeout_ms": known.timeout_ms if known else None,
        "open_since_ms": known.started_at_ms if known else None,
        "partitions": [f"{topic}-{partition}" for topic, partition in known.partitions] if known else [],
        "held": one.held,
    }


def look_lines(seen: FenceLook, decision: Decision, *, whole: bool) -> Iterator[str]:
    """The same for a person."""
    if decision.unused:
        yield decision.unused
    connectors = {each.name: each for each in seen.connectors}
    for round_ in decision.rounds:
        yield from round_.lines()
        yield from _id_lines(connectors[round_.connector], seen.at, whole=whole)


def _id_lines(each: ConnectorLook, at: float, *, whole: bool) -> Iterator[str]:
    ids = [one for one in each.ids if whole or len(each.ids) <= _SHOWN_IDS or one.held]
    width = max((len(one.transactional_id) for one in ids), default=0)
    for one in ids:
        known = one.known
        state = f"{known.state}, producer {known.producer_id}/{known.producer_epoch}" if known else "unknown to brokers"
        yield f"  {one.transactional_id:<{width}}  {state}{_open(one, at)}"


def _open(one: FenceId, at: float) -> str:
    known = one.known
    if known is None or known.started_at_ms is None:
        return ""
    partitions = ", ".join(f"{topic}-{partition}" for topic, partition in known.partitions)
    since = f"{max(0.0, at - known.started_at_ms / 1000):.0f} of {known.timeout_ms / 1000:.0f} s"
    held = "held open" if one.held else "open"
    return f", transaction {held} for {since}, in {partitions or 'no partition yet'}"
