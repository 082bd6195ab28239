"""Every change that is declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_eos_provider.changes.change import Change
from airflow_eos_provider.changes.closing.change import CLOSE
from airflow_eos_provider.changes.fencing.change import FENCING
from airflow_eos_provider.changes.intervals.change import ABANDON
from airflow_eos_provider.changes.offsets.change import OFFSETS_CHANGES
from airflow_eos_provider.changes.own_topic.change import DROP_OWN
from airflow_eos_provider.changes.rights.change import GRANT, REVOKE
from airflow_eos_provider.changes.topics.change import CREATE_TOPICS
from airflow_eos_provider.changes.transactions.change import ABORT
from airflow_eos_provider.changes.uninstall.change import UNINSTALL

#: By their names.
CHANGES: Mapping[str, Change[Any]] = {
    change.name: change
    for change in (FENCING, *OFFSETS_CHANGES, DROP_OWN, CREATE_TOPICS, GRANT, REVOKE, ABORT, ABANDON, CLOSE, UNINSTALL)
}
