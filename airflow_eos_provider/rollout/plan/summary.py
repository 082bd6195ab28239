"""A plan in a few lines, however many workers it has, for its approval.

Airflow shows the buttons below the text of a question, so a text that grows with the workers pushes them off screen.
"""

from __future__ import annotations

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.data_text import code_span, one_line
from airflow_eos_provider.rollout.plan.order import about
from airflow_eos_provider.rollout.plan.plan import ChangeKind, Plan

#: So many changed lines are shown. A roll changes two properties; more come only from configurations that differ.
CHANGED_LINES = 6

_STARTING = (ChangeKind.ROLL, ChangeKind.START)


def summary(plan: Plan) -> list[str]:
    """The plan as lines of Markdown; names and values are data in it. :meth:`Plan.markdown` has all of it."""
    concerned = sum(change.kind is not ChangeKind.NONE for change in plan.workers)
    sentences = [f"{concerned} of {len(plan.workers)} workers, one at a time.", _downtime(plan)]
    if plan.is_downgrade and any(change.mode == Mode.ENABLED for change in plan.workers):
        sentences.append("**Exactly-once ends** with the first worker that leaves `enabled`.")
    if any(edit.is_shared and edit.before != edit.after for edit in plan.edits):
        sentences.append("One configuration serves several workers: it is written for all of them with the first.")
    if programs := {change.start[0] for change in plan.workers if change.kind in _STARTING and change.start}:
        named = ", ".join(code_span(program) for program in sorted(programs)[:2])
        sentences.append(f"The workers are started by {named}.")
    if plan.connectors.lines:
        sentences.append(f"{one_line(plan.connectors.summary)} They are in the log.")
    heading = f"**Roll group {code_span(plan.group_id)} from {code_span(plan.current)} to {plan.target}**: "
    return [heading + " ".join(filter(None, sentences)), "", "```diff", *_changed_lines(plan), "```"]


def _downtime(plan: Plan) -> str:
    moved = {change.worker_id for change in plan.workers if change.kind is not ChangeKind.NONE}
    expected = [prediction for prediction in plan.task_downtime if prediction.worker_id in moved]
    if not expected:
        return ""
    best, worst = max(p.best_seconds for p in expected), max(p.worst_seconds for p in expected)
    return f"While one restarts, its tasks are unassigned for {about(best, worst)}."


def _changed_lines(plan: Plan) -> list[str]:
    """The changed lines of all edits, each once and without the edits' names."""
    lines = list(dict.fromkeys(line for line in plan.diff() if not line.startswith("--- ")))
    if len(lines) <= CHANGED_LINES:
        return lines
    return [*lines[:CHANGED_LINES], f"  and {len(lines) - CHANGED_LINES} more"]
