"""Operators that change a connector's source offsets: plan, then apply the approved plan. ``offsets`` does the work."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from airflow_eos_provider.data_text import LINE_CHARACTERS, one_line
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.links.operator_links import ClusterPageLink
from airflow_eos_provider.operators.approved import (
    APPROVED_FIELDS,
    ApprovedOperator,
    actor_of,
    is_true,
    require_approved,
)
from airflow_eos_provider.operators.failures import LOOK_RETRIES, LOOK_RETRY_DELAY, no_retry_where_pointless

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_eos_provider.offsets.verbs.apply import OffsetsChanger
    from airflow_eos_provider.offsets.verbs.request import OffsetsRequest


class _OffsetsOperator(BaseOperator):
    """What both operators share.

    :param conn_id: a connection of type ``kafka_connect``.
    :param config_topic: the workers' ``config.storage.topic``; empty: as their properties files say.
    :param offsets_topic: the workers' ``offset.storage.topic``; likewise.
    """

    template_fields: Sequence[str] = ("conn_id", "config_topic", "offsets_topic")

    operator_extra_links = (ClusterPageLink(),)

    def __init__(
        self,
        *,
        conn_id: str = KafkaConnectHook.default_conn_name,
        config_topic: str = "",
        offsets_topic: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.config_topic = config_topic
        self.offsets_topic = offsets_topic

    def changer(self) -> AbstractContextManager[OffsetsChanger]:
        """What changes offsets of the cluster."""
        hook = KafkaConnectHook(self.conn_id)
        return hook.offsets(config_topic=self.config_topic, offsets_topic=self.offsets_topic, report=self._report)

    def _report(self, line: str) -> None:
        self.log.info("%s", one_line(line, LINE_CHARACTERS))


class ConnectOffsetsBackupOperator(BaseOperator):
    """Write a group's source offsets into a backup, as ``eos offsets backup`` does. Changes nothing in Kafka.

    An existing backup is kept, and the task returns it: a later try, or *Clear*, does not replace it with newer
    offsets.

    :param file: where to write, on the machine that runs the task; a template, such as ``/backups/{{ ds }}.jsonl``.
    :param connector: of this one only; empty for all.
    :param conn_id: a connection of type ``kafka_connect``.
    :param offsets_topic: the workers' ``offset.storage.topic``; empty: as their properties files say.
    :returns: ``file``, ``records``, ``sha256``, and the header of the backup: group, cluster, topics with positions.
    :raises AirflowFailException: the offsets cannot be looked at, or the file is something else; with the reason.
    :raises AirflowException: nothing is written, since it would lack offsets of a connector: its Kafka cluster is
        unknown or does not answer. The next try takes the backup again.
    """

    template_fields: Sequence[str] = ("file", "connector", "conn_id", "offsets_topic")

    def __init__(
        self,
        *,
        file: str,
        connector: str = "",
        conn_id: str = KafkaConnectHook.default_conn_name,
        offsets_topic: str = "",
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("retries", LOOK_RETRIES)
        kwargs.setdefault("retry_delay", LOOK_RETRY_DELAY)
        super().__init__(**kwargs)
        self.file = file
        self.connector = connector
        self.conn_id = conn_id
        self.offsets_topic = offsets_topic

    def execute(self, context: Context) -> dict[str, Any]:
        with (
            no_retry_where_pointless(),
            KafkaConnectHook(self.conn_id).source_offsets(offsets_topic=self.offsets_topic) as offsets,
        ):
            file = Path(self.file)
            report = offsets.taken_before(file, self.connector) or offsets.backup(file, self.connector, whole=True)
        if report.unknown:
            unknown = "; ".join(f"{name}: {error.found}" for name, error in report.unknown.items())
            raise AirflowException(f"Nothing is written: what the tasks read would be missing of {one_line(unknown)}")
        records, digest = report.document["records"], report.document["sha256"]
        self.log.info("%d offsets are in %s, sha256 %s", records, file, digest)
        return dict(report.document)


class ConnectOffsetsPlanOperator(_OffsetsOperator):
    """Plan a change of a connector's source offsets. Nothing is changed.

    The parameters are the same as for ``eos offsets``; JSON is given as text, so that it can come from a form.

    :param verb: ``alter``, ``reset``, ``restore``, ``migrate``, ``copy`` or ``prune``.
    :param connector: whose offsets are changed.
    :param where: of a reset, and of an alteration to one offset: a JSON object, only source partitions with these
        members.
    :param offsets: of an alteration: JSON as ``PATCH /connectors/<name>/offsets`` takes it; or ``{"offset": …}``, one
        offset for each source partition that has one.
    :param unlike: of an alteration: also offsets whose members, types or source partition differ from the
        connector's present ones.
    :param absent: of an alteration, a restore or a copy: the connector need not exist, since it is created later.
    :param file: of a restore, or of a copy from another group: the path of a backup on the machine that runs the task.
    :param from_elsewhere: of a restore: even from another group, Kafka cluster or topic id.
    :param source: of a copy: the connector whose offsets are taken.
    :param to: of a migration: ``own`` or ``global``.
    :param topic: of a migration to ``own``: the topic; empty for ``<group>-<connector>-offsets``.
    :returns: the plan, as ``OffsetsPlan.to_dict`` gives it.
    :raises AirflowSkipException: there is nothing to do.
    :raises AirflowFailException: it cannot be done; with the reason.
    """

    template_fields: Sequence[str] = (
        *_OffsetsOperator.template_fields,
        *("verb", "connector", "where", "offsets", "unlike", "absent"),
        *("file", "from_elsewhere", "source", "to", "topic"),
    )

    def __init__(
        self,
        *,
        verb: str,
        connector: str,
        where: str = "",
        offsets: str = "",
        unlike: bool | str = False,
        absent: bool | str = False,
        file: str = "",
        from_elsewhere: bool | str = False,
        source: str = "",
        to: str = "",
        topic: str = "",
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("retries", LOOK_RETRIES)
        kwargs.setdefault("retry_delay", LOOK_RETRY_DELAY)
        super().__init__(**kwargs)
        self.verb = verb
        self.connector = connector
        self.where = where
        self.offsets = offsets
        self.unlike = unlike
        self.absent = absent
        self.file = file
        self.from_elsewhere = from_elsewhere
        self.source = source
        self.to = to
        self.topic = topic

    def execute(self, context: Context) -> dict[str, Any]:
        with no_retry_where_pointless(), self.changer() as changer:
            request = self._request(changer.group_id)
            plan = changer.unfinished(request) or changer.plan(request)
        if plan.nothing_to_do:
            raise AirflowSkipException(f"Nothing to do: the offsets of {one_line(self.connector)} are as asked for.")
        self.log.info("Plan %s", plan.hash)
        for line in plan.lines():
            self.log.info("%s", one_line(line, LINE_CHARACTERS))
        return plan.to_dict()

    def _request(self, group_id: str) -> OffsetsRequest:
        from airflow_eos_provider.connect.topics.internal_topics import own_topic_name
        from airflow_eos_provider.offsets.seen.group import parse_where
        from airflow_eos_provider.offsets.verbs.changes import parse_offsets
        from airflow_eos_provider.offsets.verbs.request import OffsetsRequest, Verb

        verb = Verb(self.verb)
        wanted, each = parse_offsets(self.offsets) if verb is Verb.ALTER else ([], False)
        own = (self.topic or own_topic_name(group_id, self.connector)) if self.to == "own" else ""
        return OffsetsRequest(
            verb,
            self.connector,
            where=parse_where(self.where or None) if verb in (Verb.RESET, Verb.ALTER) else {},
            wanted=tuple(wanted),
            each=each,
            unlike=verb is Verb.ALTER and is_true(self.unlike),
            absent=verb in (Verb.ALTER, Verb.RESTORE, Verb.COPY) and is_true(self.absent),
            file=self.file if verb in (Verb.RESTORE, Verb.COPY) else "",
            from_elsewhere=verb is Verb.RESTORE and is_true(self.from_elsewhere),
            source=self.source if verb is Verb.COPY else "",
            own_topic=own if verb is Verb.MIGRATE else None,
        )


class ConnectOffsetsOperator(ApprovedOperator, _OffsetsOperator):
    """Carry an approved change of source offsets out.

    Killed in mid-act, its next try takes the change up where the journal says that it stopped; the change is never
    written twice.

    :param plan: the plan as :class:`ConnectOffsetsPlanOperator` returns it.
    :returns: ``change_id``, ``verb``, ``connector``, ``plan``, ``written``, ``taken_up`` and ``failed`` (empty).
    :raises AirflowFailException: refused, or moved since it was planned; nothing was changed then. Or the change is
        done, and a task of the connector failed when it was started again.
    """

    template_fields: Sequence[str] = (*_OffsetsOperator.template_fields, *APPROVED_FIELDS)

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_eos_provider.journal.change import change_journal
        from airflow_eos_provider.offsets.verbs.plan import OffsetsPlan

        with no_retry_where_pointless():
            plan = OffsetsPlan.from_dict(self.plan)
            require_approved(self.approval, plan.hash)
            with self.changer() as changer:
                journal = change_journal(
                    changer.session.kafka,
                    changer.group_id,
                    actor=actor_of(self.approval, context),
                    reason=self.reason,
                    report=self._report,
                )
                report = changer.apply(plan, journal, take_over=is_true(self.take_over))
        if report.problem:  # the change is done: a retry would find nothing to do, and succeed
            raise AirflowFailException(str(report.problem))
        return report.to_dict()
