"""Operators that grant and revoke rights (ACLs)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_eos_provider.changes.change import Change
from airflow_eos_provider.changes.rights.change import GRANT, REVOKE
from airflow_eos_provider.hooks.pipeline import kafka_settings
from airflow_eos_provider.operators.change import ChangeOperator, ChangePlanOperator


class _RightsOperator(ChangeOperator):
    """Writes ACLs, with a connection of its own if it has one."""

    template_fields: Sequence[str] = (*ChangeOperator.template_fields, "admin_conn_id")

    def __init__(self, *, admin_conn_id: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.admin_conn_id = admin_conn_id

    def change_to_apply(self) -> Change[Any]:
        if not self.admin_conn_id:
            return self.change
        rights: Any = type(self.change)
        return rights(kafka_settings(self.admin_conn_id))  # type: ignore[no-any-return]


class ConnectAclGrantPlanOperator(ChangePlanOperator):
    """Plan which ACLs are created. Nothing is changed."""

    change = GRANT


class ConnectAclGrantOperator(_RightsOperator):
    """Create only the approved ACLs.

    :param admin_conn_id: a connection of type ``kafka`` or ``kafka_connect`` of the same brokers, with *Alter* on the
        cluster; empty: the cluster's own connection. Keep that right out of the connections of other tasks.
    """

    change = GRANT


class ConnectAclRevokePlanOperator(ChangePlanOperator):
    """Plan which ACLs are deleted. Nothing is changed."""

    change = REVOKE


class ConnectAclRevokeOperator(_RightsOperator):
    """Delete only the approved ACLs.

    :param admin_conn_id: as :class:`ConnectAclGrantOperator` takes it.
    """

    change = REVOKE
