"""What is asked about rights; its options serve ``eos acl check`` and ``explain``, too."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_eos_provider.changes.change import option
from airflow_eos_provider.connect.mode import Mode


@dataclass(frozen=True, slots=True)
class RightsRequest:
    """Whose rights, and which."""

    connectors: tuple[str, ...] = option(
        "Only of this connector's clients; may be repeated.", (), title="Connectors", completes="connector"
    )
    mode: Mode = option("The mode that the workers have, or are to have.", Mode.ENABLED, title="Mode")  # noqa: RUF009
    prefixed: bool = option(
        "One rule for all ids of a connector; what else it reaches is named.",
        False,
        title="One rule for a connector's ids",
    )
    for_tasks_max: bool = option(
        "Ids for as many tasks as tasks.max allows, not only for those there are.", False, title="For tasks.max"
    )
    worker: str = option("The workers' principal; default: as their files say.", "", metavar="PRINCIPAL")
    producer: str = option("Of connectors' producers; default: as files and overrides.", "", metavar="PRINCIPAL")
    consumer: str = option("Of the consumers that read their offsets.", "", metavar="PRINCIPAL")
    admin: str = option("Of their admin clients, which fence.", "", metavar="PRINCIPAL")
    pipelines: tuple[str, ...] = option(
        "Also of the interval runs of this pipeline, which write these topics; may be repeated.",
        (),
        metavar="GROUP/NAME[:TOPIC,…]",
    )
    interval_principal: str = option("Of interval runs.", "User:spark", metavar="PRINCIPAL")
    verbs: tuple[str, ...] = option(
        "Also what eos itself needs for this, as in 'fencing apply' or 'topics check'; may be repeated.",
        (),
        metavar="VERB",
        completes="verb",
    )


@dataclass(frozen=True, slots=True)
class RevokeRequest(RightsRequest):
    """Whose rights are revoked, and which."""

    even_if_needed: bool = option(
        "Also what workers and connectors need that are there, other pipelines of the group, and other verbs.",
        False,
        title="Even if needed",
    )
