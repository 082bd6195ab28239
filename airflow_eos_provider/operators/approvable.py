"""Plans of each kind as the person sees them who approves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_eos_provider.changes.change import MOST_LINES
from airflow_eos_provider.changes.change import Plan as ChangePlan
from airflow_eos_provider.changes.declared import CHANGES
from airflow_eos_provider.data_text import LINE_CHARACTERS, code_span, counted, one_line

if TYPE_CHECKING:
    from airflow_eos_provider.rollout.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Approvable:
    """A plan as it is put to a person.

    :param question: one line.
    :param summary: lines of Markdown, above the buttons: of a roll a few, of any other plan all of it, up to a bound.
    :param in_the_log: a sentence on what only the task's log has, or that there is no more.
    :param whole: the whole plan, for the log.
    """

    hash: str
    short_hash: str
    question: str
    summary: tuple[str, ...]
    in_the_log: str
    whole: str


def approvable(document: Mapping[str, Any]) -> Approvable:
    """The plan of a task that came before.

    :param document: ``to_dict`` of a plan, of a roll or a change.
    :raises ConfigurationError: it is none, or its content does not have its hash.
    """
    from airflow_eos_provider.rollout.plan.plan import Plan

    kind = document.get("kind") if isinstance(document, Mapping) else None
    if kind in CHANGES:
        return of_change(ChangePlan.from_dict(document))
    return of_roll(Plan.from_dict(document))


def of_roll(plan: Plan) -> Approvable:
    """A roll."""
    from airflow_eos_provider.rollout.plan.summary import summary

    return Approvable(
        hash=plan.hash,
        short_hash=plan.short_hash,
        question=f"Roll Kafka Connect group {one_line(plan.group_id)} to {plan.target}? (plan {plan.short_hash})",
        summary=tuple(summary(plan)),
        in_the_log="Each worker with its task downtime, the lines of each file, and what starts the workers are in "
        "this task's log (tab Logs).",
        whole=plan.markdown(),
    )


def of_change(plan: ChangePlan) -> Approvable:
    """A change that is declared."""
    shown, in_the_log = _shown(plan.lines)
    return Approvable(
        hash=plan.hash,
        short_hash=plan.short_hash,
        question=f"{one_line(plan.question)} (plan {plan.short_hash})",
        summary=(f"**{CHANGES[plan.kind].title} in group {code_span(plan.group_id)}**:", "", *shown),
        in_the_log=in_the_log,
        whole="\n".join(plan.lines),
    )


def _shown(lines: Sequence[str]) -> tuple[list[str], str]:
    """A plan's lines as a list in Markdown, as many as have room above the buttons; and a sentence on the rest."""
    shown = [f"- {code_span(line.strip(), LINE_CHARACTERS)}" for line in lines[:MOST_LINES]]
    more = len(lines) - len(shown)
    if more <= 0:
        return shown, "These are all its lines."
    return (
        [*shown, f"- and {counted(more, 'more line')}, **which are not shown here**"],
        f"These are {MOST_LINES} of its {len(lines):,} lines; this task's log (tab Logs) has every one.",
    )
