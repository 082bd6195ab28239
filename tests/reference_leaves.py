"""Everything that a command leaves behind: where, by which commands, and how it is removed.

docs/reference/left-behind.md is generated from it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from airflow_eos_provider.changes.declared import CHANGES


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


class Leaf(NamedTuple):
    """One thing that is left behind. In its name, what is in angle brackets differs."""

    where: Where
    name: str
    verbs: tuple[str, ...]  #: the commands that leave it; Airflow's operators do what these do
    what: str
    end: End
    how: str = ""


FORGOTTEN = "forgotten after transactional.id.expiration.ms without use, 7 days by default; none can be deleted"

#: The commands that edit workers' files and restart workers.
_ROLLS = ("apply", "rollout resume", "rollout undo")

#: The commands that write the group's journal.
JOURNALLED = (
    "apply",
    "rollout pause",
    "rollout resume",
    "rollout abort",
    "rollout undo",
    *(change.name for change in CHANGES.values() if change.takes_lease),
)

#: The operators and jobs that write intervals have no command of their own.
_INTERVALS = ("interval runs",)

LEAVES: tuple[Leaf, ...] = (
    Leaf(
        Where.KAFKA,
        "topic eos-rollout-<group>",
        tuple(verb for verb in JOURNALLED if verb != "uninstall"),
        "the journal: lease, rolls, changes, requests, history",
        End.UNINSTALL,
        "with it goes what 'eos rollout list' shows, and which lines of workers' files a roll has set temporarily",
    ),
    Leaf(
        Where.KAFKA,
        "transactional id eos-rollout-<group>",
        JOURNALLED,
        "the journal's one writer",
        End.BROKERS,
        FORGOTTEN,
    ),
    Leaf(
        Where.KAFKA,
        "topic <interval group>-configs",
        ("intervals abandon", "interval runs"),
        "the control topic: unfinished runs",
        End.LEDGERS,
    ),
    Leaf(
        Where.KAFKA,
        "topic <interval group>-<pipeline>-offsets",
        ("intervals abandon", "interval runs"),
        "a ledger: which intervals are complete",
        End.LEDGERS,
        "an interval that you run again is then written again, because no record says that it is complete",
    ),
    Leaf(
        Where.KAFKA,
        "transactional ids <interval group>-<run>-<number>, …-coordinator, <interval group>-<pipeline>-planner",
        _INTERVALS,
        "the writers of runs",
        End.BROKERS,
        FORGOTTEN,
    ),
    Leaf(Where.KAFKA, "records of interval runs, with the header that run_header names", _INTERVALS, "data", End.STAYS),
    Leaf(
        Where.KAFKA,
        "newer epochs of transactional ids <group>-<connector>-<task>",
        ("fencing apply", "offsets alter", "offsets reset", "offsets restore", "offsets migrate", "offsets prune"),
        "fencing, which creates an id that was never used",
        End.BROKERS,
        FORGOTTEN,
    ),
    Leaf(
        Where.KAFKA,
        "a newer epoch of the id, and an abort marker",
        ("transactions abort",),
        "the end of a hanging transaction",
        End.STAYS,
    ),
    Leaf(Where.KAFKA, "ACLs", ("acl grant",), "the rights that were asked for", End.REVOKE),
    Leaf(
        Where.CONNECT,
        "internal topics and their settings",
        ("offsets migrate", "topics create"),
        "topics that Connect needs, as a worker creates them",
        End.STAYS,
        "only 'eos offsets drop-own' removes a topic of Connect, with its own plan",
    ),
    Leaf(
        Where.CONNECT,
        "records in offsets topics",
        ("offsets alter", "offsets reset", "offsets restore", "offsets migrate", "offsets prune"),
        "offsets, and tombstones until compaction",
        End.STAYS,
    ),
    Leaf(
        Where.CONNECT,
        "offsets.storage.topic in a connector's configuration",
        ("offsets migrate", "offsets drop-own"),
        "where the connector has its offsets; set or taken out",
        End.STAYS,
    ),
    Leaf(
        Where.WORKER,
        "exactly.once.source.support and isolation.level in the worker's file",
        _ROLLS,
        "the mode, and how offsets are read below enabled",
        End.STAYS,
        "'eos plan --to disabled' turns the mode off",
    ),
    Leaf(
        Where.WORKER,
        "<worker's file>.eos-backup",
        _ROLLS,
        "the file before the last change, with its secrets and its permissions",
        End.UNINSTALL,
    ),
    Leaf(
        Where.WORKER,
        ".<worker's file>.eos-new",
        _ROLLS,
        "the file that takes over the name",
        End.ITSELF,
        "'eos uninstall' removes what a killed one has left",
    ),
    Leaf(
        Where.WORKER,
        ".<worker's file>.eos-part, .<worker's file>.eos-backup.eos-new",
        _ROLLS,
        "the new file and the backup while they are written",
        End.ITSELF,
        "the next change of that file, or 'eos uninstall', removes what a killed one has left",
    ),
    Leaf(
        Where.WORKER,
        "airflow_eos_provider/<worker>.restart, .claim.… and .out.… next to the pid file",
        _ROLLS,
        "how far a restart has come",
        End.ITSELF,
        "the next restart of that worker, or 'eos uninstall', removes what a killed one has left",
    ),
    Leaf(
        Where.WORKER,
        "~/.local/state/airflow_eos_provider/<worker>.restart, .claim.… and .out.… (or below $XDG_STATE_HOME)",
        _ROLLS,
        "the same of a worker that another supervisor owns",
        End.ITSELF,
        "the next restart of that worker removes what a killed one has left",
    ),
    Leaf(
        Where.WORKER,
        "<pid file>.<pid>.eos",
        _ROLLS,
        "the pid file while it is written",
        End.ITSELF,
    ),
    Leaf(
        Where.HERE,
        ".eos/plans/<hash>.json, in the working directory",
        ("plan",),
        "plans that were shown, so that a refusal can name the changes since",
        End.UNINSTALL,
        "in the directory from which it is called",
    ),
    Leaf(
        Where.HERE,
        "~/.config/airflow_eos_provider/clusters/<name>.yaml, or the file that is named",
        ("discover",),
        "cluster files",
        End.OWNER,
    ),
    Leaf(
        Where.HERE,
        "the file that is named with --to",
        ("offsets backup",),
        "a backup of offsets",
        End.OWNER,
    ),
    Leaf(
        Where.HERE,
        ".eos/lab/<name>, .eos/demo, ~/.cache/airflow_eos_provider",
        ("lab up", "demo"),
        "the lab, and the jars that it was made of",
        End.OWNER,
        "'eos lab down' and 'eos demo --down' remove the lab; the cache is removed as a folder",
    ),
    Leaf(
        Where.AIRFLOW,
        "eos-interval-*.json in the folder for temporary files of the task's machine",
        _INTERVALS,
        "what a job is to write, with the client's credentials, mode 0600",
        End.ITSELF,
        "the next task on that machine removes what a killed one has left",
    ),
    Leaf(
        Where.AIRFLOW,
        "task state eos_rollout, eos_gate, eos_plan_approval",
        ("the operators of rolls and changes",),
        "which roll a task carries out, and its request for approval; without expiry",
        End.OWNER,
        "it goes with the task instance ('airflow db clean')",
    ),
    Leaf(
        Where.AIRFLOW,
        "connections of the type kafka_connect, results (XCom), asset events",
        ("the operators",),
        "Airflow's own records",
        End.OWNER,
    ),
)

#: What is never left, since one might look for it.
NEVER = (
    "no consumer group: topics are read by assignment, and no offset is committed",
    "no service, timer or unit: a restart's helper ends with the restart",
    "nothing by 'eos acl check': what it attempts as a principal has no effect",
)


def left_by(verb: str) -> list[Leaf]:
    """What a command leaves behind, apart from the journal."""
    return [leaf for leaf in LEAVES if verb in leaf.verbs and "eos-rollout-" not in leaf.name]
