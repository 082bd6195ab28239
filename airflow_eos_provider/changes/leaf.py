"""What a command leaves behind: where, and what ends it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

#: Plans that were shown, so that a refusal can say what has moved since. Nothing depends on this folder.
PLANS_FOLDER = Path(".eos/plans")


class Where(StrEnum):
    """Where something is left."""

    KAFKA = "Kafka"
    CONNECT = "Connect's own topics"
    WORKER = "a worker's machine"
    HERE = "the machine of the command"
    AIRFLOW = "Airflow"


class End(StrEnum):
    """What ends it."""

    UNINSTALL = "eos uninstall"
    LEDGERS = "eos uninstall --ledgers"
    REVOKE = "eos acl revoke"
    BROKERS = "the brokers, by themselves"
    ITSELF = "the command itself; left only if it is killed"
    OWNER = "its owner"
    STAYS = "stays: it is the purpose of the command"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One thing that is left behind.

    :param verbs: the commands that leave it, without ``eos``; Airflow's operators do what these do. Of a leaf that
        changes declare: those that are no change.
    """

    where: Where
    name: str
    verbs: tuple[str, ...]
    what: str
    end: End
    how: str = ""


FORGOTTEN = "forgotten after transactional.id.expiration.ms without use, 7 days by default; none can be deleted"

#: Left by every change that fences tasks.
FENCED_IDS = Leaf(
    Where.KAFKA,
    "newer epochs of transactional ids <group>-<connector>-<task>",
    (),
    "fencing, which creates an id that was never used",
    End.BROKERS,
    FORGOTTEN,
)

ABORT_MARKER = Leaf(
    Where.KAFKA,
    "a newer epoch of the id, and an abort marker",
    (),
    "the end of a hanging transaction",
    End.STAYS,
)

CONTROL_TOPIC = Leaf(
    Where.KAFKA,
    "topic <interval group>-configs",
    (),
    "the control topic: unfinished runs",
    End.LEDGERS,
)

LEDGER = Leaf(
    Where.KAFKA,
    "topic <interval group>-<pipeline>-offsets",
    (),
    "a ledger: which intervals are complete",
    End.LEDGERS,
    "an interval that you run again is then written again, because no record says that it is complete",
)

OFFSET_RECORDS = Leaf(
    Where.CONNECT,
    "records in offsets topics",
    (),
    "offsets, and tombstones until compaction",
    End.STAYS,
)

OWN_TOPIC_SETTING = Leaf(
    Where.CONNECT,
    "offsets.storage.topic in a connector's configuration",
    (),
    "where the connector has its offsets; set or taken out",
    End.STAYS,
)

#: Left by every change that creates or mends them.
INTERNAL_TOPICS = Leaf(
    Where.CONNECT,
    "internal topics and their settings",
    (),
    "topics that Connect needs, as a worker creates them",
    End.STAYS,
    "only 'eos offsets drop-own' removes a topic of Connect, with its own plan",
)
