"""The operator that backs a group's source offsets up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException

from airflow_eos_provider.data_text import one_line
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.operators.failures import LookOperator, no_retry_where_pointless

if TYPE_CHECKING:
    from airflow.sdk import Context


class ConnectOffsetsBackupOperator(LookOperator):
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
