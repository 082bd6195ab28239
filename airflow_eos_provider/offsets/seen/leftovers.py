"""Leftovers of deleted connectors in their group: offsets, task count records, transactional ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_eos_provider.connect.topics.config_topic import ClusterState
from airflow_eos_provider.connect.transactional_ids import task_number
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.offsets.offsets_topic import OffsetsTopic


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What one deleted connector has left."""

    connector: str
    offsets: int  #: how many, in the global offsets topic
    tasks: int | None  #: of its last task count record in the config topic; None if it has none
    ids: Mapping[str, TransactionState]  #: its transactional ids that the brokers still know, with their states

    @property
    def is_open(self) -> bool:
        """Whether it has left an open transaction."""
        return any(state.is_open for state in self.ids.values())

    def lines(self) -> list[str]:
        """What is left besides the offsets, for a person, and what becomes of it."""
        found = []
        if self.tasks is not None:
            found.append(
                f"a task count record of {self.tasks} in the config topic; it stays: Connect fences these tasks by it "
                "before it starts the first task of another connector of this name"
            )
        if self.ids:
            states = ", ".join(f"{id_} {state}" for id_, state in sorted(self.ids.items()))
            found.append(
                f"transactional ids: {states}; the brokers forget each after transactional.id.expiration.ms without use"
            )
        if self.is_open:
            found.append("a transaction is open: readers of committed records wait for its end")
        return found


def find_leftovers(
    group_id: str, state: ClusterState, global_topic: OffsetsTopic, transactions: TransactionsClient
) -> dict[str, Leftovers]:
    """What every deleted connector of a group has left, by name.

    An id alone does not make a connector: ``a-b-c-0`` may be that of the connector ``b-c`` in the group ``a``, or of
    ``c`` in ``a-b``. So ids count for those of which the group's own topics know.
    """
    offsets = {
        connector: sum(not record.is_removed for record in records)
        for connector, records in global_topic.committed.items()
        if connector is not None and connector not in state.connectors
    }
    tasks = {connector: record.count for connector, record in state.task_count_records.items()}
    known = {listed.transactional_id: listed.state for listed in transactions.list(f"{group_id}-")}
    found = {}
    for connector in sorted({*(name for name, count in offsets.items() if count), *tasks} - state.connectors.keys()):
        prefix = f"{group_id}-{connector}-"
        ids = {id_: state for id_, state in known.items() if task_number(id_, prefix) is not None}
        found[connector] = Leftovers(connector, offsets.get(connector, 0), tasks.get(connector), ids)
    return found
