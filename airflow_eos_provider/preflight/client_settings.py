"""The value that a client of a task uses: the connector's override, without one the worker's file or the default.

The rule is from ``Worker.baseProducerConfigs``, ``baseConsumerConfigs`` and KIP-458.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_eos_provider.connect.properties import references, whole_number
from airflow_eos_provider.connect.topics.internal_topics import WorkerFiles


@dataclass(frozen=True, slots=True)
class Reading:
    """A value, and where it comes from.

    :param origin: as in ``producer.override.acks=1``.
    """

    text: str
    origin: str

    @property
    def number(self) -> int | None:
        return whole_number(self.text)


@dataclass(frozen=True, slots=True)
class Readings:
    """The values that a setting has, by worker on which the task may run.

    :param known: each different one once.
    :param unknown: why there may be others; empty if there are none.
    """

    known: tuple[Reading, ...]
    unknown: str = ""

    @property
    def numbers(self) -> Readings:
        """The same where a number is wanted: what is none says nothing."""
        strange = [one.origin for one in self.known if one.number is None]
        return Readings(
            tuple(one for one in self.known if one.number is not None),
            self.unknown or (f"{strange[0]} is no number" if strange else ""),
        )


def of_client(config: Mapping[str, str], files: WorkerFiles, client: str, name: str, default: str) -> Readings:
    override = f"{client}.override.{name}"
    if override in config:
        return of_connector(override, config[override])
    return of_worker(files, f"{client}.{name}", default)


def of_worker(files: WorkerFiles, name: str, default: str) -> Readings:
    found, unknown = dict[str, Reading](), ""
    for worker, properties in files.properties.items():
        value = properties.get(name, "")
        if any(references(value)):
            unknown = f"a config provider supplies {name} of {worker}"
        elif value:
            found.setdefault(value, Reading(value, f"{name}={value} in the file of {worker}"))
        else:
            found.setdefault(default, Reading(default, f"{name}={default} by default"))
    if files.unread or not files.properties:
        unread = ", ".join(files.unread) or "any worker"
        unknown = unknown or f"the file of {unread} is not readable here, and may have {name}"
        found = found or {default: Reading(default, f"{name}={default} by default")}
    return Readings(tuple(found.values()), unknown)


def of_connector(name: str, value: str) -> Readings:
    if any(references(value)):
        return Readings((), f"a config provider supplies {name}")
    return Readings((Reading(value, f"{name}={value}"),))
