"""The generated part of ``docs/reference/formats.md`` about JSON: the keys that each command prints.

Keys are read from the source: from the dictionary that a function returns, assigns to ``document``, or prints. Where a
part is made by another function, :data:`REPORTS` names it with the place that it has in the whole.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import airflow_eos_provider
from airflow_eos_provider.changes.declared import CHANGES

_PACKAGE = Path(airflow_eos_provider.__file__).parent

_ROLLED = [
    ("", "cli/confirm.py:print_applied"),
    ("plan.", "rollout/plan/roll_plan.py:Plan"),
    ("plan.", "rollout/plan/roll_plan.py:Plan.to_dict"),
    ("plan.", "cli/rollout/plan_apply.py:to_document"),
    ("report.", "rollout/outcome.py:RolloutReport.to_dict"),
]
_ROLLOUT = [
    ("", "rollout/roll_history.py:Rollout.to_dict"),
    ("workers[].", "rollout/roll_history.py:Rollout._worker"),
    ("workers[].", "rollout/outcome.py:WorkerOutcome"),
]
_ASKED = [("", "cli/rollout/rollouts.py:_answered")]
_ACL_CHECK = [("", "cli/cluster/acl.py:_document"), ("rules[].", "acls/judge.py:RightFinding.to_dict")]
#: Of each command that applies a declared change.
_CHANGE = [
    ("", "cli/confirm.py:print_applied"),
    ("plan.", "changes/change.py:Plan"),
    ("plan.", "changes/change.py:Plan.to_dict"),
]
_OFFSETS = [
    ("plan.content.offsets_of.<connector>.", "offsets/verbs/offsets_plan.py:OffsetsPlan"),
    ("report.connectors[].", "offsets/verbs/apply.py:ConnectorReport.to_dict"),
]
_ACL_CHANGE = [
    ("plan.content.", "changes/rights/rights_plan.py:AclPlan.content"),
    ("plan.content.acls[].", "kafka/acl_values.py:Acl"),
]
_FINDING = ("findings[].", "finding.py:Finding")
_AUDIT = [("", "finding.py:Audit.to_dict"), _FINDING]
_TOPIC_FINDING = [_FINDING, ("findings[].", "connect/topics/topic_checks.py:TopicFinding")]
_KNOWN_ID = ("[].", "transactions/known_ids.py:KnownId.to_dict")
_READER = "transactions/readers.py:Reader.to_dict"

#: Command -> the parts of its report: where in the whole, and which function makes it. A change's plan, and the
#: ``document`` of its ``apply``, need no row.
REPORTS: dict[str, list[tuple[str, str]]] = {
    "eos status": [
        ("", "cluster_status.py:to_document"),
        ("workers[].", "cluster_status.py:_worker_document"),
        _FINDING,
    ],
    "eos hosts check": [
        ("", "cli/cluster/hosts.py:check"),
        ("workers[].", "rollout/hosts/readiness.py:Readiness.to_dict"),
        ("workers[].checks[].", _FINDING[1]),
    ],
    "eos hosts sudoers": [("[].", "rollout/hosts/sudoers.py:SudoersFile.to_dict")],
    "eos preflight": [
        ("", "preflight/preflight_report.py:Report.to_dict"),
        _FINDING,
        ("findings[].", "preflight/findings.py:ConnectorFinding"),
        ("--to-version: ", "cli/rollout/preflight.py:check_version"),
        ("--to-version: copies[].", "offsets/seen/copies.py:Copies"),
        ("--to-version: findings[].", _FINDING[1]),
    ],
    "eos plan": [
        ("", "rollout/plan/roll_plan.py:Plan"),
        ("", "rollout/plan/roll_plan.py:Plan.to_dict"),
        ("", "cli/rollout/plan_apply.py:to_document"),
        ("", "cli/rollout/plan_apply.py:find_plan"),
    ],
    "eos apply": _ROLLED,
    "eos rollout list": [("", "cli/rollout/rollouts.py:list_"), ("rollouts[].", _ROLLOUT[0][1])],
    "eos rollout show": _ROLLOUT,
    "eos rollout wait": _ROLLOUT,
    "eos rollout pause": _ASKED,
    "eos rollout abort": _ASKED,
    "eos rollout resume": _ROLLED,
    "eos rollout undo": _ROLLED,
    "eos drift": [*_AUDIT, ("", "rollout/drift/drift.py:Drift.to_dict")],
    "eos offsets list": [("[].", "offsets/seen/group_offsets.py:SeenOffset.to_dict")],
    "eos offsets diff": [("[].", "offsets/seen/difference.py:Difference.to_dict")],
    **{f"eos offsets {verb}": _OFFSETS for verb in ("alter", "reset", "restore", "prune", "migrate")},
    "eos offsets drop-own": [
        ("plan.content.", "changes/own_topic/drop.py:OwnTopic"),
        ("report.", "changes/own_topic/change.py:_done"),
    ],
    "eos changes list": [("[].", "cli/rollout/changes.py:list_")],
    "eos fencing list": [
        ("", "changes/fencing/change.py:look_document"),
        ("", "changes/fencing/change.py:Fencing.look"),
        ("connectors[].ids[].", "changes/fencing/change.py:_id_document"),
    ],
    "eos fencing apply": [("report.connectors[].", "changes/fencing/round.py:RoundReport.to_dict")],
    "eos transactions list": [
        _KNOWN_ID,
        ("--hanging: ", "transactions/readers.py:hanging_document"),
        ("--hanging: hanging[].readers[].", _READER),
        ("--watch: ", "transactions/differences.py:Change.to_dict"),
    ],
    "eos clusters list": [("[].", "cli/cluster/clusters.py:_described")],
    "eos transactions describe": [_KNOWN_ID, ("[].", "cli/exactly_once/transactions.py:_described")],
    "eos transactions audit": [
        *_AUDIT,
        ("", "transactions/audit.py:TransactionAudit.to_dict"),
    ],
    "eos transactions abort": [("report.", "changes/transactions/abort.py:abort")],
    "eos acl check": _ACL_CHECK,
    "eos acl explain": [("[].", "cli/cluster/acl.py:_explained")],
    "eos acl grant": _ACL_CHANGE,
    "eos acl revoke": _ACL_CHANGE,
    "eos topics check": [("", "connect/topics/topic_checks.py:TopicsLook.to_dict"), *_TOPIC_FINDING],
    "eos topics create": [
        ("plan.content.changes[].", "connect/topics/topic_checks.py:TopicChange"),
        ("report.", "changes/topics/change.py:_report"),
        *((f"report.{at}", made_by) for at, made_by in _TOPIC_FINDING),
    ],
    "eos topics list": [
        ("", "cli/cluster/topics_list.py:list_"),
        ("config_topic.", "connect/topics/config_census.py:Census.to_dict"),
    ],
    "eos intervals list": [
        ("", "cli/exactly_once/intervals.py:list_"),
        ("runs[].", "interval/verify.py:RunStatus.to_dict"),
    ],
    "eos intervals show": [("", "interval/verify.py:RunStatus.to_dict")],
    "eos intervals verify": [("", "interval/verify.py:Verification.to_dict")],
    "eos uninstall": [
        ("plan.content.", "changes/uninstall/remove.py:Left.content"),
        ("plan.content.removes[].", "changes/uninstall/remove.py:Item"),
    ],
    "eos lab status": [("", "lab/lab_status.py:LabStatus.as_json")],
}

_PRINTS = ("print_json", "print_document")


def page(commands: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """The written part of the page.

    :param commands: each command's words and the command.
    """
    for path, command in commands:
        if (parts := _parts(path)) and has_json(command):
            keys = dict.fromkeys(f"{at}{key}" for at, made_by in parts for key in _known(made_by))
            yield f"\n## `{path} --json`\n\n{', '.join(f'`{key}`' for key in keys)}\n"


def _parts(path: str) -> list[tuple[str, str]]:
    own, change = REPORTS.get(path, []), CHANGES.get(path.removeprefix("eos "))
    if change is None:
        return own
    applies = type(change).apply
    file = applies.__module__.partition(".")[2].replace(".", "/")
    return [*_CHANGE, *own, ("report.", f"{file}.py:{applies.__qualname__}")]


def lost() -> list[str]:
    """What :data:`REPORTS` names and the code does not have any more; the page is without it."""
    return [made_by for parts in REPORTS.values() for _, made_by in parts if not _known(made_by)]


def _known(made_by: str) -> list[str]:
    try:
        return keys_of(made_by)
    except (LookupError, OSError):
        return []


def has_json(command: Any) -> bool:
    """Whether a command can print JSON."""
    return any("--json" in getattr(option, "opts", ()) for option in command.params)


def keys_of(function: str) -> list[str]:
    """The keys of the dictionary that a function makes, those within it behind a dot; of a class its fields.

    :param function: file below the package and name, as in ``rollout/plan/roll_plan.py:Plan.to_dict``.
    :raises LookupError: there is no such function, or it makes no dictionary.
    """
    path, _, name = function.partition(":")
    node: ast.AST = _tree(path)
    fields: list[str] = []
    for part in name.split("."):
        node = next((one for one in ast.iter_child_nodes(node) if getattr(one, "name", None) == part), ast.Pass())
        if isinstance(node, ast.ClassDef):
            fields = [
                ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign) and _is_stored(one)
            ]
    found = fields if isinstance(node, ast.ClassDef) else [k for value in _made(node) for k in _keys(value, fields)]
    if not found:
        raise LookupError(f"{function} makes no document")
    return list(dict.fromkeys(found))


def _is_stored(field: ast.AnnAssign) -> bool:
    return not ast.unparse(field.target).isupper() and not ast.unparse(field.value or field.target).startswith(
        "unstored"
    )


@cache
def _tree(path: str) -> ast.Module:
    return ast.parse((_PACKAGE / path).read_text(encoding="utf-8"))


def _made(function: ast.AST) -> Iterator[ast.expr]:
    """What a function returns, assigns to ``document`` or prints."""
    for node in ast.walk(function):
        is_document = isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["document"]
        if (is_document or isinstance(node, ast.Return)) and node.value is not None:
            yield node.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in _PRINTS:
            yield node.args[0]


def _keys(value: ast.expr, fields: Iterable[str]) -> Iterator[str]:
    value = _inner(value)
    if ast.unparse(value) == "asdict(self)":
        yield from fields
    if not isinstance(value, ast.Dict):
        return
    for key, content in zip(value.keys, value.values, strict=True):
        if key is None:
            yield from _keys(content, fields)
        elif isinstance(key, ast.Constant):
            yield str(key.value)
            dot = "[]." if isinstance(content, (ast.List, ast.ListComp)) else "."
            yield from (f"{key.value}{dot}{below}" for below in _keys(content, fields))


def _inner(value: ast.expr) -> ast.expr:
    """The element of a list, the first branch of a condition that is a dictionary."""
    if isinstance(value, ast.ListComp):
        return value.elt
    if isinstance(value, ast.List) and value.elts:
        return value.elts[0]
    if isinstance(value, ast.IfExp):
        return value.body if isinstance(value.body, ast.Dict) else value.orelse
    return value
