"""A requested change of a connector's source offsets, as data: from a command line, a DAG's form, or the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from airflow_eos_provider.connect.topics.source_offsets import offset_key
from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.kafka.topics import require_topic_name
from airflow_eos_provider.offsets.seen import backup
from airflow_eos_provider.offsets.topic import OffsetsTopic
from airflow_eos_provider.offsets.verbs import changes
from airflow_eos_provider.offsets.verbs.changes import Wanted, Write
from airflow_eos_provider.offsets.verbs.reader import OffsetsReader


class Verb(StrEnum):
    """A change of source offsets."""

    ALTER = "alter"
    RESET = "reset"
    RESTORE = "restore"
    MIGRATE = "migrate"
    COPY = "copy"
    PRUNE = "prune"


@dataclass(frozen=True, slots=True)
class OffsetsRequest:
    """A change that is asked for.

    :param where: of a reset, and of an alteration with ``each``: only source partitions with these members.
    :param each: of an alteration: the one offset of ``wanted`` is for each source partition that has an offset; its
        ``partition`` is None.
    :param unlike: of an alteration: also offsets whose members, types or source partition are not like those that the
        connector has.
    :param file: of a restore: the backup; of a copy: the backup that has the other connector's offsets, empty for those
        of this group.
    :param own_topic: of a migration: the connector's own offsets topic afterwards, empty for the global one.
    """

    verb: Verb
    connector: str
    where: Mapping[str, Any] = field(default_factory=dict)
    wanted: tuple[Wanted, ...] = ()  #: of an alteration: the new offsets
    file: str = ""
    from_elsewhere: bool = False  #: of a restore: even from another group, Kafka cluster or topic id
    source: str = ""  #: of a copy: the connector whose offsets are taken
    own_topic: str | None = None
    each: bool = False
    unlike: bool = False
    absent: bool = False  #: the connector need not exist: it is created later

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        problem = None
        if not self.connector:
            problem = "no connector is named"
        elif self.verb is Verb.COPY and self.source in ("", "" if self.file else self.connector):
            problem = "the offsets must be copied from another connector"
        elif self.verb is Verb.ALTER and not self.wanted:
            problem = "no new offset is named"
        if problem:
            raise ConfigurationError(f"This is no request to {self.verb} offsets: {problem}.")
        if self.own_topic:
            require_topic_name(self.own_topic, remedy="Name the connector's own topic with --topic.")

    @property
    def carries(self) -> bool:
        """Whether it writes offsets as they are elsewhere at that moment."""
        return self.verb is Verb.MIGRATE or (self.verb is Verb.COPY and not self.file)

    def writes(self, reader: OffsetsReader, kafka_cluster_id: str, group_id: str) -> list[Write]:
        """What it writes, from the offsets as they are."""
        name = self.connector
        if self.verb is Verb.PRUNE:
            if reader.exists(name):
                raise RefusedError(
                    f"Connector {name} exists: its offsets are not leftovers.",
                    remedy=f"To let it start from the beginning: 'eos offsets reset {name}'.",
                )
            # In another Kafka cluster the topic may be that of another group, too.
            return changes.reset(changes.Places(name, [reader.global_topic()]), {})
        if self.verb is Verb.MIGRATE:
            return changes.migrate(name, reader.of(name), self._target(reader))
        places = reader.places(name)
        match self.verb:
            case Verb.RESET:
                return changes.reset(places, self.where)
            case Verb.ALTER:
                return changes.alter(places, self._wanted_of(places), unlike=self.unlike)
            case Verb.COPY:
                if self.file:
                    return changes.copy_saved(self.source, backup.read(Path(self.file)), places)
                return changes.copy(self.source, reader.of(self.source), places)
            case Verb.RESTORE:
                saved = backup.read(Path(self.file))
                if not self.from_elsewhere:
                    changes.require_same_origin(saved, kafka_cluster_id, group_id, places.topics)
                return changes.restore(places, saved)

    def require_one_place(self, reader: OffsetsReader) -> None:
        """Go on only if the tasks will find what it writes, see :func:`changes.require_one_place`."""
        if self.verb is not Verb.PRUNE:
            changes.require_one_place(self.connector, self._target(reader), exists=reader.exists(self.connector))

    def _target(self, reader: OffsetsReader) -> OffsetsTopic:
        """The topic that the connector's tasks read afterwards."""
        if self.verb is Verb.MIGRATE:
            return reader.place_with(self.connector, self.own_topic or "")
        return reader.of(self.connector)[0]

    def checked_offsets(self, reader: OffsetsReader) -> list[tuple[Any, Any]]:
        """The new offsets of an alteration that Connect can check: those whose keys are spelt as Connect spells them.

        It would write any other one under a second key. A removal fails in Connect where exactly-once is on and the
        connector has an offsets topic of its own.
        """
        if self.verb is not Verb.ALTER or not reader.exists(self.connector):
            return []
        places = reader.places(self.connector)
        return [
            (one.partition, one.offset)
            for one in self._wanted_of(places)
            if one.offset is not None and places.keys_of(one.partition) == {offset_key(self.connector, one.partition)}
        ]

    def _wanted_of(self, places: changes.Places) -> Sequence[Wanted]:
        """The offsets of an alteration."""
        return changes.one_for_each(places, self.where, self.wanted[0].offset) if self.each else self.wanted
