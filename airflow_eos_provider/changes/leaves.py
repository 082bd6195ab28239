"""A table of everything that a command leaves behind: where, by which commands, and how it is removed.

docs/reference/left-behind.md is generated from it.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_eos_provider.changes.declared import CHANGES
from airflow_eos_provider.changes.leaf import (
    ABORT_MARKER,
    CONTROL_TOPIC,
    FENCED_IDS,
    FORGOTTEN,
    INTERNAL_TOPICS,
    LEDGER,
    OFFSET_RECORDS,
    OWN_TOPIC_SETTING,
    End,
    Leaf,
    Where,
)
from airflow_eos_provider.changes.rights.change import GRANT


def _with_changes(leaf: Leaf, *others: str) -> Leaf:
    """The leaf with the commands that leave it: the changes that declare it, then the others."""
    by = tuple(change.name for change in CHANGES.values() if leaf in change.leaves)
    return replace(leaf, verbs=(*by, *others))


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
    "offsets drop-own",
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
    _with_changes(CONTROL_TOPIC, *_INTERVALS),
    _with_changes(LEDGER, *_INTERVALS),
    Leaf(
        Where.KAFKA,
        "transactional ids <interval group>-<run>-<number>, …-coordinator, <interval group>-<pipeline>-planner",
        _INTERVALS,
        "the writers of runs",
        End.BROKERS,
        FORGOTTEN,
    ),
    Leaf(Where.KAFKA, "records of interval runs, with the header that run_header names", _INTERVALS, "data", End.STAYS),
    _with_changes(FENCED_IDS),
    _with_changes(ABORT_MARKER),
    *(_with_changes(leaf) for leaf in GRANT.leaves),
    _with_changes(INTERNAL_TOPICS),
    _with_changes(OFFSET_RECORDS),
    _with_changes(OWN_TOPIC_SETTING, "offsets drop-own"),
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
