"""A request about rights; its options serve ``eos acl check`` and ``explain``, too."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_eos_provider.changes.change import option
from airflow_eos_provider.connect.mode import Mode


@dataclass(frozen=True, slots=True)
class RightsRequest:
    """Whose rights, and which."""

    connectors: tuple[str, ...] = option(
        "Only rights of this connector's clients; may be repeated.", (), title="Connectors", completes="connector"
    )
    mode: Mode = option("The mode that the workers have, or are to have.", Mode.ENABLED, title="Mode")  # noqa: RUF009
    prefixed: bool = option(
        "One rule for all ids of a connector; other ids that it covers are listed.",
        False,
        title="One rule for a connector's ids",
    )
    for_tasks_max: bool = option(
        "Ids for as many tasks as tasks.max allows, not only for those there are.", False, title="For tasks.max"
    )
    worker: str = option("The workers' principal; default: from their files.", "", metavar="PRINCIPAL")
    producer: str = option(
        "Principal of connectors' producers; default: from files and overrides.", "", metavar="PRINCIPAL"
    )
    consumer: str = option("Principal of the consumers that read their offsets.", "", metavar="PRINCIPAL")
    admin: str = option("Principal of their admin clients, which fence.", "", metavar="PRINCIPAL")
    pipelines: tuple[str, ...] = option(
        "Also rights of the interval runs of this pipeline, which write these topics; may be repeated.",
        (),
        metavar="GROUP/NAME[:TOPIC,…]",
    )
    interval_principal: str = option("Principal of interval runs.", "User:spark", metavar="PRINCIPAL")
    verbs: tuple[str, ...] = option(
        "Also rights that eos itself needs for this verb, such as 'fencing apply' or 'topics check'; may be repeated.",
        (),
        metavar="VERB",
        completes="verb",
    )


@dataclass(frozen=True, slots=True)
class RevokeRequest(RightsRequest):
    """Whose rights are revoked, and which."""

    even_if_needed: bool = option(
        "Also rights that existing workers, connectors, other pipelines of the group or other verbs need.",
        False,
        title="Even if needed",
    )
