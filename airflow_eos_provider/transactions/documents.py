"""Transactions as JSON: ``eos transactions`` and the page print the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_eos_provider.kafka.admin.open_transactions import Place
from airflow_eos_provider.transactions.ends import EndsOrWhy
from airflow_eos_provider.transactions.hanging import HangingLook
from airflow_eos_provider.transactions.readers import ReadersLook


def hanging_document(look: HangingLook, ends: Mapping[Place, EndsOrWhy], readers: ReadersLook) -> dict[str, Any]:
    """What hangs, as JSON. Scripts rely on the names."""
    return {
        "hanging": [
            {
                **one.held._asdict(),
                "transactional_id": one.transactional_id,
                "state": one.state and str(one.state),
                "ends": ends_document(ends[one.held.place]),
                "readers": [reader.to_dict() for reader in readers.at(one.held.place)],
            }
            for one in look.hanging
        ],
        "unseen": [held._asdict() for held in look.unseen],
        "unknown": {f"{topic}-{partition}": why for (topic, partition), why in look.unknown.items()},
        "hidden": look.hidden,
        "readers_unknown": list(readers.unknown),
    }


def ends_document(ends: EndsOrWhy) -> dict[str, int | str]:
    """How far a partition can be read, or why that is not known, as JSON."""
    return {"unknown": ends} if isinstance(ends, str) else dict(ends.to_dict())
