"""Operators for a group's internal topics: plan, then create and mend what was approved."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from airflow_eos_provider.data_text import LINE_CHARACTERS, one_line
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.links.operator_links import ClusterPageLink
from airflow_eos_provider.operators.approved import NOBODY_ASKED, actor_of, is_true, require_approved
from airflow_eos_provider.operators.failures import no_retry_where_pointless
from airflow_eos_provider.operators.rolling_upgrade import (
    LOOK_RETRIES,
    LOOK_RETRY_DELAY,
    ROLL_RETRIES,
    ROLL_RETRY_DELAY,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_eos_provider.connect.session import ConnectSession
    from airflow_eos_provider.connect.topics.topic_checks import Finding, TopicsLook
    from airflow_eos_provider.offsets.internal_topics.look import Given, InternalTopicsClient


class _TopicsOperator(BaseOperator):
    """What both operators share.

    :param conn_id: a connection of type ``kafka_connect``.
    :param config_topic: the workers' ``config.storage.topic``; empty: as their properties files say.
    :param offsets_topic: the workers' ``offset.storage.topic``; likewise.
    :param status_topic: the workers' ``status.storage.topic``; likewise.
    :param own_topics: further topics that connectors are to have as their own, separated by commas.
    :param partitions: of offsets topics; empty: as the workers' files say, else 25.
    :param replication_factor: of all topics; empty: as the workers' files say, else 3.
    """

    template_fields: Sequence[str] = (
        *("conn_id", "config_topic", "offsets_topic", "status_topic"),
        *("own_topics", "partitions", "replication_factor"),
    )

    operator_extra_links = (ClusterPageLink(),)

    def __init__(
        self,
        *,
        conn_id: str = KafkaConnectHook.default_conn_name,
        config_topic: str = "",
        offsets_topic: str = "",
        status_topic: str = "",
        own_topics: str = "",
        partitions: int | str = "",
        replication_factor: int | str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.config_topic = config_topic
        self.offsets_topic = offsets_topic
        self.status_topic = status_topic
        self.own_topics = own_topics
        self.partitions = partitions
        self.replication_factor = replication_factor

    @contextmanager
    def client(self) -> Iterator[tuple[ConnectSession, InternalTopicsClient]]:
        """The cluster's session, and what looks at the topics and changes them."""
        from airflow_eos_provider.connect.session import ConnectSession
        from airflow_eos_provider.offsets.internal_topics.look import InternalTopicsClient

        given = self.given()
        with ConnectSession(KafkaConnectHook(self.conn_id).get_cluster()) as session:
            yield session, InternalTopicsClient(session, given)

    def given(self) -> Given:
        """What is said about the topics besides the workers' files.

        :raises ConfigurationError: a number is none.
        """
        from airflow_eos_provider.connect.topics.internal_topics import Role
        from airflow_eos_provider.offsets.internal_topics.look import Given

        names = {Role.CONFIGS: self.config_topic, Role.OFFSETS: self.offsets_topic, Role.STATUS: self.status_topic}
        return Given(
            {role: name for role, name in names.items() if name},
            tuple(name.strip() for name in self.own_topics.split(",") if name.strip()),
            _number("partitions", self.partitions),
            _number("replication_factor", self.replication_factor),
        )

    def _report(self, line: str) -> None:
        self.log.info("%s", one_line(line, LINE_CHARACTERS))

    def _warn_of(self, findings: Sequence[Finding]) -> None:
        for one in findings:
            self.log.warning("%s", one_line(f"{one.found} What to do: {one.remedy}", LINE_CHARACTERS))


class ConnectTopicsPlanOperator(_TopicsOperator):
    """Plan what creates and mends a group's internal topics and connectors' own. Nothing is changed.

    What cannot be mended here is logged as a warning, each with what helps.

    :returns: the plan, as ``TopicPlan.to_dict`` gives it.
    :raises AirflowSkipException: there is nothing to do.
    :raises AirflowFailException: the topics cannot be looked at; with the reason.
    :raises AirflowException: nothing is to be done but for own topics that are not known.
    """

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("retries", LOOK_RETRIES)
        kwargs.setdefault("retry_delay", LOOK_RETRY_DELAY)
        super().__init__(**kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_eos_provider.connect.topics.topic_checks import findings, plan_of

        with no_retry_where_pointless(), self.client() as (_, client):
            look = _whole_look(client)
        plan = plan_of(look)
        self._warn_of([one for one in findings(look) if not (one.creates or one.mends)])
        for what in look.not_checked:
            self._report(f"Not checked: {what}.")
        if not plan.changes:
            try:
                client.require_own_topics()
            except EosError as error:
                raise AirflowException(f"An own topic is not known, so this is not all: {error.found}") from error
            raise AirflowSkipException("Nothing to do: no internal topic is missing, and none is to be mended here.")
        self.log.info("Plan %s", plan.hash)
        for line in plan.diff():
            self._report(line)
        return plan.to_dict()


class ConnectTopicsOperator(_TopicsOperator):
    """Create and mend internal topics as approved.

    Killed in mid-act, its next try does what is left of the approved plan.

    :param plan: the plan as :class:`ConnectTopicsPlanOperator` returns it. The other parameters are those that it had.
    :param approval: result of :class:`~airflow_eos_provider.operators.approval.PlanApprovalOperator`; if given, its
        hash must be the plan's, and an approval without a result, as one that was marked as success, is none.
    :param reason: why, for the journal.
    :param take_over: fence a controller though its lease still runs; a template gives the words ``True`` or ``False``.
    :returns: ``plan`` (its hash), ``changes``, ``findings``, which are left, and ``not_checked``.
    :raises AirflowFailException: refused, or moved since it was planned.
    """

    template_fields: Sequence[str] = (*_TopicsOperator.template_fields, "plan", "approval", "reason", "take_over")

    def __init__(
        self, *, plan: Any, approval: Any = NOBODY_ASKED, reason: str = "", take_over: bool | str = False, **kwargs: Any
    ) -> None:
        kwargs.setdefault("retries", ROLL_RETRIES)
        kwargs.setdefault("retry_delay", ROLL_RETRY_DELAY)
        super().__init__(**kwargs)
        self.plan = plan
        self.approval = approval
        self.reason = reason
        self.take_over = take_over

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_eos_provider.connect.topics.topic_checks import TopicPlan, findings, plan_of
        from airflow_eos_provider.journal.change import change_journal
        from airflow_eos_provider.offsets.internal_topics.create import create_topics, require_approved_topics

        with no_retry_where_pointless():
            approved = TopicPlan.from_dict(self.plan)
            require_approved(self.approval, approved.hash)
            with self.client() as (session, client):
                connectors = {name for change in approved.changes for name in change.wanted.connectors}
                plan = plan_of(_whole_look(client, connectors))
                require_approved_topics(session.kafka, approved, plan)
                journal = change_journal(
                    session.kafka,
                    session.cluster.group_id,
                    actor=actor_of(self.approval, context),
                    reason=self.reason,
                    report=self._report,
                )
                create_topics(client, plan, journal, approved=approved.hash, take_over=is_true(self.take_over))
                look = client.look()
        left = findings(look)
        self._warn_of(left)
        for what in look.not_checked:
            self.log.warning("Not checked: %s", one_line(what, LINE_CHARACTERS))
        return {
            "plan": approved.hash,
            "changes": [change.to_dict() for change in approved.changes],
            "findings": [one.to_dict() for one in left],
            "not_checked": list(look.not_checked),
        }


def _whole_look(client: InternalTopicsClient, connectors: Collection[str] = ()) -> TopicsLook:
    """A look that knows connectors' own topics, unless the group has no worker, as before its first start.

    :param connectors: whose topics are needed even then.
    :raises EosError: no worker answers, the error of the last one; or a topic that is needed is not known.
    """
    look = client.look()
    if client.unreachable is not None and (look.workers_run or connectors):
        raise client.unreachable
    client.require_own_topics(connectors)
    return look


def _number(name: str, value: int | str) -> int | None:
    if value in ("", None):
        return None
    try:
        number = int(value)
    except ValueError:
        number = 0
    if number < 1:
        raise ConfigurationError(f"{name} is {value}.", expected="a whole number from 1 on, or nothing")
    return number
