"""The audit of a Kafka cluster's transactions: a task that fails if readers are blocked or a failure is near."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.operators.audit import AuditError, AuditOperator
from airflow_eos_provider.transactions.audit import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from airflow_eos_provider.transactions.audit import TransactionAudit

#: XCom of what an audit has found. Renaming it makes one audit report again what was reported before.
KEYS = "transactions_keys"


class ConnectTransactionsError(AuditError):
    """The audit of transactions has found something.

    :ivar is_news: whether the audit before has not found all of it already.
    """


class ConnectTransactionsAuditOperator(AuditOperator):
    """Look once, and fail if a transaction hangs, is open too long, an id is about to expire, or two groups collide.

    It changes nothing. Open transactions, hanging ones and collisions are looked for on the whole Kafka cluster, ids
    near their expiration among the tasks of this Connect cluster.

    :param conn_id: a connection of type ``kafka_connect`` (templated).
    :param config_topic: the workers' ``config.storage.topic``, where their files cannot be read (templated).
    :param topics: where hanging ones are looked for; by default all topics that one may see (templated).
    :param longer_than: seconds for which a transaction may be open; None for its own timeout.
    :param idle_part: part of ``transactional.id.expiration.ms`` after which an idle id is named.
    :param days_before: or so many days before it is over, whichever comes first; not in its first half.
    :returns: the result of the audit, as ``Audit.to_dict`` gives it.
    :raises ConnectTransactionsError: something was found; each finding with what to do.
    :raises ConnectUnseenError: not everything could be checked.
    """

    template_fields: Sequence[str] = ("conn_id", "config_topic", "topics")
    keys = KEYS
    failure = ConnectTransactionsError

    def __init__(
        self,
        *,
        conn_id: str = KafkaConnectHook.default_conn_name,
        config_topic: str | None = None,
        topics: Sequence[str] = (),
        longer_than: float | None = None,
        idle_part: float = DEFAULT_LIMITS.idle_part,
        days_before: float = DEFAULT_LIMITS.days_before,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.config_topic = config_topic
        self.topics = topics
        self.longer_than = longer_than
        self.idle_part = idle_part
        self.days_before = days_before

    def look(self) -> TransactionAudit:
        """One look at the transactions."""
        from airflow_eos_provider.transactions.auditor import Auditor

        cluster = KafkaConnectHook(self.conn_id).get_cluster()
        limits = Limits(self.longer_than, self.idle_part, self.days_before)
        with Auditor(cluster, config_topic=self.config_topic or None, topics=self.topics, limits=limits) as auditor:
            return auditor.look()
