"""A plan: the changes of one roll, in a form that is shown, hashed, approved and only then applied.

The hash covers the roster, config digests, current and target modes, changed properties, versions, and the start
command of each worker. It does not cover leader, placement and order: these change by themselves, and the roll decides
by their current state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.data_text import LINE_CHARACTERS, VALUE_CHARACTERS, code_span, one_line
from airflow_eos_provider.errors import ConfigurationError, PlanMovedError
from airflow_eos_provider.journal.records import Step, StepStatus
from airflow_eos_provider.plan_hash import HashedPlan, hash_of
from airflow_eos_provider.preflight.preflight_report import Report
from airflow_eos_provider.rollout.hosts.launch import Launch
from airflow_eos_provider.rollout.observe.observation import Observation, WorkerObservation
from airflow_eos_provider.rollout.plan.order import TaskDowntime, about, foreseen, predict
from airflow_eos_provider.rollout.plan.worker_edits import (
    ISOLATION_PROPERTY,
    Former,
    not_ready_for_enabled,
    properties_to_set,
)
from airflow_eos_provider.stored import from_json, to_json

#: So many findings about connectors are in a plan; 'eos preflight' shows all.
SHOWN_FINDINGS = 10

#: So many changed lines are in a summary. A roll changes two properties; more come only from files that differ.
CHANGED_LINES = 6

#: After these the edit is as planned, or as it was before.
_RESULTS = (StepStatus.RESTARTED, StepStatus.PASSED, StepStatus.RESTORED)

#: Between the announcement and the result of a write.
_OPEN = (StepStatus.INTENT, StepStatus.FAILED)


class ChangeKind(StrEnum):
    """What a plan does to one worker."""

    ROLL = "ROLL"
    FILE_ONLY = "FILE_ONLY"
    START = "START"
    NONE = "NONE"

    @property
    def words(self) -> str:
        return {
            ChangeKind.ROLL: "change the file and restart",
            ChangeKind.FILE_ONLY: "change the file (stopped: it joins in the new mode)",
            ChangeKind.START: "change the file if it is not changed yet, and start",
            ChangeKind.NONE: "nothing: already there",
        }[self]


_STARTING = (ChangeKind.ROLL, ChangeKind.START)


@dataclass(frozen=True, slots=True)
class WorkerChange:
    """What a plan does to one worker.

    :param mode: its proven mode now, or ``stopped``.
    :param declared: what its configuration says now; ``None`` if it says nothing (Connect's default is ``disabled``).
    :param config: name of its edit (the path of its file), see :class:`~airflow_eos_provider.rollout.hosts.host.Edit`;
        workers with the same one share it.
    :param config_before: SHA-256 of its configuration now; ``config_after``: with the properties set.
    :param version: version of Connect; empty while it is stopped.
    :param sets_mode: whether the mode in its configuration changes; it does not where that is the target already.
    :param isolation: the worker's own ``isolation.level`` now; None if it says nothing.
    :param sets_isolation: whether that changes, see ``worker_edits.py``.
    :param isolation_after: its value then: ``read_committed``, or on the way to enabled what it was before the roll
        that set it for the way; None takes the line away.
    :param start: the command that starts it, secrets withheld, in the folder ``cwd`` with these ``variables``.
    :param launch: digest of command, folder and variables with their values, see ``launch.py``.
    :param left_by: the rollout that left it down, which is why it is started; empty for any other worker.
    """

    worker_id: str
    kind: ChangeKind
    mode: str
    declared: str | None
    config: str
    config_before: str
    config_after: str
    version: str
    sets_mode: bool = True
    isolation: str | None = None
    sets_isolation: bool = False
    isolation_after: str | None = None
    start: tuple[str, ...] = ()
    cwd: str = ""
    variables: tuple[str, ...] = ()
    launch: str = ""
    left_by: str = ""

    @property
    def stays_stopped(self) -> bool:
        """Whether its owner has stopped it, so that no roll starts it."""
        return self.kind is ChangeKind.FILE_ONLY or (self.mode == "stopped" and self.kind is not ChangeKind.START)

    @property
    def mode_before(self) -> Mode | None:
        """Its mode, of a stopped worker the one that it would join in; None if it cannot be known."""
        text = (self.declared or Mode.DISABLED) if self.mode == "stopped" else self.mode
        return Mode(text) if text in set(Mode) else None

    @property
    def runs(self) -> str:
        """In words, how it runs now."""
        return f"{self.mode} by rollout {self.left_by}" if self.left_by else self.mode

    @property
    def executes(self) -> str:
        """In words, what is executed to start it."""
        return str(Launch(self.start, self.cwd, self.variables, self.launch))

    def edits(self, target: Mode) -> dict[str, str | None]:
        """The properties that change in its configuration; None takes one away."""
        mode: dict[str, str | None] = {MODE_PROPERTY: str(target)} if self.sets_mode else {}
        return mode | ({ISOLATION_PROPERTY: self.isolation_after} if self.sets_isolation else {})


@dataclass(frozen=True, slots=True)
class PlannedEdit:
    """An edit of a plan: written once, however many workers it serves, while each of them is restarted by itself.

    So the content follows from the last result of any worker that the edit serves, not from one worker's own step.

    :param before: SHA-256 of what it held when the plan was made; ``after``: when it is carried out.
    :param workers: the workers that it serves.
    """

    name: str
    before: str
    after: str
    workers: tuple[str, ...]

    @property
    def is_shared(self) -> bool:
        return len(self.workers) > 1

    def may_hold(self, steps: Mapping[str, Step]) -> tuple[str, ...]:
        """The digests that this roll may have left. Another's edit to the very same bytes would have no backup."""
        if any(steps[worker].status in _OPEN for worker in self.workers if worker in steps):
            return (self.before, self.after)
        return (self.after,) if self.is_as_planned(steps) else (self.before,)

    def is_as_planned(self, steps: Mapping[str, Step]) -> bool:
        """Whether the last result of a write left what the plan says; not so before the first one."""
        results = [steps[worker] for worker in self.workers if worker in steps and steps[worker].status in _RESULTS]
        last = max(results, key=lambda step: (step.appended_at_ms, step.at), default=None)
        return last is not None and last.status is not StepStatus.RESTORED

    def was_written_for_another(self, worker_id: str, steps: Mapping[str, Step]) -> bool:
        """Whether a step of another worker may have written it, so that it says nothing about this worker's own."""
        return any(worker in steps for worker in self.workers if worker != worker_id)


@dataclass(frozen=True, slots=True)
class ConnectorNotes:
    """What a plan says about the connectors; not part of its hash.

    :param lines: the worst findings, one a line.
    """

    summary: str = ""
    lines: tuple[str, ...] = ()

    @classmethod
    def of(cls, report: Report) -> ConnectorNotes:
        """The notes of a preflight."""
        return cls(
            report.summary(), tuple(one_line(line, 2 * VALUE_CHARACTERS) for line in report.lines(SHOWN_FINDINGS))
        )


@dataclass(frozen=True, slots=True)
class Plan(HashedPlan):
    """One roll of one group to one mode.

    :param workers: what is done to each, ordered by worker id.
    :param task_downtime: a prediction per worker, in the order in which they will be restarted as far as it can be
        known beforehand; not part of the hash.
    :param connectors: what the mode does to the connectors, as far as it was looked at; not part of the hash.
    """

    #: Of the document that the journal keeps.
    SCHEMA: ClassVar[int] = 4

    group_id: str
    kafka_cluster_id: str
    target: Mode
    workers: tuple[WorkerChange, ...]
    task_downtime: tuple[TaskDowntime, ...] = ()
    connectors: ConnectorNotes = ConnectorNotes()

    @property
    def hash(self) -> str:
        """SHA-256 over what the plan rests on, in hexadecimal."""
        rests_on = replace(self, task_downtime=(), connectors=ConnectorNotes())
        return hash_of({**to_json(rests_on), "property": MODE_PROPERTY})

    @property
    def nothing_to_do(self) -> bool:
        return all(change.kind is ChangeKind.NONE for change in self.workers)

    @property
    def current(self) -> str:
        """The modes that the running workers have now, e.g. ``disabled`` or ``disabled, preparing``."""
        return ", ".join(sorted({change.mode for change in self.workers if change.mode != "stopped"})) or "stopped"

    @property
    def is_downgrade(self) -> bool:
        """Whether it takes some worker down and none up. A stopped worker counts by the mode it would join in."""
        now = [change.mode_before for change in self.workers]
        return any(m.is_above(self.target) for m in now if m) and not any(self.target.is_above(m) for m in now if m)

    @property
    def puts_back(self) -> bool:
        """Whether a property that an earlier roll had set for the way is put back as it was."""
        return self.target.runs_exactly_once_tasks and any(change.sets_isolation for change in self.workers)

    def change(self, worker_id: str) -> WorkerChange:
        return next(change for change in self.workers if change.worker_id == worker_id)

    @property
    def edits(self) -> tuple[PlannedEdit, ...]:
        """Each edit once, with the workers that it serves."""
        served: dict[str, list[WorkerChange]] = {}
        for change in self.workers:
            served.setdefault(change.config, []).append(change)
        return tuple(
            PlannedEdit(name, changes[0].config_before, changes[0].config_after, tuple(c.worker_id for c in changes))
            for name, changes in served.items()
        )

    def edit_of(self, worker_id: str) -> PlannedEdit:
        """The edit that serves a worker."""
        return next(edit for edit in self.edits if worker_id in edit.workers)

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON: kept in the journal and handed from task to task."""
        return {"hash": self.hash, **to_json(self)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Plan:
        """Read :meth:`to_dict` back."""
        try:
            plan = from_json(cls, document)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"The document is no plan of this version ({type(error).__name__}: {error}).",
                remedy="Make a new plan.",
            ) from error
        if plan.hash != document.get("hash") or to_json(plan.workers) != document["workers"]:
            raise ConfigurationError("The plan's content does not match its hash.", remedy="Make a new plan.")
        return plan

    def markdown(self) -> str:
        """The plan as a person reads it before saying yes, as Markdown; names and values are data in it."""
        predictions = {prediction.worker_id: prediction for prediction in self.task_downtime}
        lines = [
            f"{self._heading()} (plan `{self.short_hash}`)",
            "",
            "| worker | runs | tasks | what happens | its tasks are unassigned |",
            "|---|---|---|---|---|",
        ]
        for change in self.workers:
            prediction = predictions.get(change.worker_id)
            tasks = prediction.tasks if prediction else 0
            shown = str(prediction) if prediction and change.kind is not ChangeKind.NONE else "not at all"
            worker_id, runs = code_span(change.worker_id), code_span(change.runs)
            lines.append(f"| {worker_id} | {runs} | {tasks} | {change.kind.words} | {shown} |")
        lines += ["", "```diff", *self.diff(), "```", ""]
        executed = self.executed()
        if executed:
            lines += ["Start commands:", "", *(f"- {code_span(line, 1_000)}" for line in executed), ""]
        lines += [
            f"{code_span(edit.name)} serves {', '.join(map(code_span, edit.workers))}: the roll writes it once, with "
            f"the first of them. Each of them that restarts after that, for any reason, starts in {self.target}. If "
            "one does not pass its gate, the roll restores the file for all of them. "
            for edit in self.edits
            if edit.is_shared and edit.before != edit.after
        ]
        if self.is_downgrade and any(change.mode == Mode.ENABLED for change in self.workers):
            lines.append(
                "Exactly-once ends with the first worker that leaves `enabled`: records written from then on may be "
                "duplicated, none are lost. "
            )
        if self.puts_back:
            lines.append(
                f"This roll restores the former value of `{ISOLATION_PROPERTY}`, which an earlier roll set "
                "temporarily: an enabled worker reads committed without it. "
            )
        if self.connectors.summary:
            lines += [f"Effects on the connectors: {one_line(self.connectors.summary)}", ""]
            lines += [*(f"- {code_span(line, LINE_CHARACTERS)}" for line in self.connectors.lines), ""]
        lines.append("One worker at a time, the current leader first: its tasks wait for no rebalance delay.")
        return "\n".join(lines)

    def summary(self) -> list[str]:
        """The plan as a few lines of Markdown, however many workers it has, for its approval.

        Airflow shows the buttons below the text of a question, so a text that grows with the workers pushes them off
        screen. :meth:`markdown` has all of the plan.
        """
        concerned = sum(change.kind is not ChangeKind.NONE for change in self.workers)
        sentences = [f"{concerned} of {len(self.workers)} workers, one at a time.", self._downtime()]
        if self.is_downgrade and any(change.mode == Mode.ENABLED for change in self.workers):
            sentences.append("**Exactly-once ends** with the first worker that leaves `enabled`.")
        if any(edit.is_shared and edit.before != edit.after for edit in self.edits):
            sentences.append("One configuration serves several workers: it is written for all of them with the first.")
        if programs := {change.start[0] for change in self.workers if change.kind in _STARTING and change.start}:
            named = ", ".join(code_span(program) for program in sorted(programs)[:2])
            sentences.append(f"The workers are started by {named}.")
        if self.connectors.lines:
            sentences.append(f"{one_line(self.connectors.summary)} They are in the log.")
        changed = list(dict.fromkeys(line for line in self.diff() if not line.startswith("--- ")))
        if len(changed) > CHANGED_LINES:
            changed = [*changed[:CHANGED_LINES], f"  and {len(changed) - CHANGED_LINES} more"]
        return [f"{self._heading()}: {' '.join(filter(None, sentences))}", "", "```diff", *changed, "```"]

    def _heading(self) -> str:
        return f"**Roll group {code_span(self.group_id)} from {code_span(self.current)} to {self.target}**"

    def _downtime(self) -> str:
        moved = {change.worker_id for change in self.workers if change.kind is not ChangeKind.NONE}
        expected = [prediction for prediction in self.task_downtime if prediction.worker_id in moved]
        if not expected:
            return ""
        best, worst = max(p.best_seconds for p in expected), max(p.worst_seconds for p in expected)
        return f"While one restarts, its tasks are unassigned for {about(best, worst)}."

    def executed(self) -> list[str]:
        """What is executed to start each worker that is started, one line each, without secrets."""
        return [f"{change.worker_id}: {change.executes}" for change in self.workers if change.kind in _STARTING]

    def diff(self) -> list[str]:
        """The changed lines of each edit, and nothing else of it."""
        lines = []
        for edit in self.edits:
            if edit.before == edit.after:
                continue
            change = self.change(edit.workers[0])
            lines.append(f"--- {edit.name}  ({', '.join(edit.workers)})")
            now = {MODE_PROPERTY: change.declared, ISOLATION_PROPERTY: change.isolation}
            for name, value in change.edits(self.target).items():
                signed = (("-", now[name]), ("+", value))
                lines += [f"{sign}{name}={each}" for sign, each in signed if each is not None]
        return [one_line(line, LINE_CHARACTERS) for line in lines] or ["  no configuration changes"]

    def require_unmoved(self, now: Plan) -> None:
        """Refuse to apply this plan to a cluster that is no longer as it was."""
        if now.hash == self.hash:
            return
        raise PlanMovedError(
            f"The cluster has changed since plan {self.short_hash} was made:\n"
            + "\n".join(f"  - {line}" for line in _differences(self, now)),
            remedy="Check these changes, then make a new plan and apply it.",
        )


def make_plan(
    observation: Observation,
    target: Mode,
    digest_after: Mapping[str, str],
    temporary: Mapping[str, Former] | None = None,
    left_down: Mapping[str, str] | None = None,
) -> Plan:
    """What a roll to ``target`` would change. Preflight must have passed."""
    workers = []
    for worker in sorted(observation.workers, key=lambda w: w.worker_id):
        former = (temporary or {}).get(worker.worker_id)
        left_by = (left_down or {}).get(worker.worker_id, "")
        after, is_stopped = digest_after[worker.worker_id], worker in observation.stopped
        workers.append(_change(worker, target, former, after, is_stopped=is_stopped, left_by=left_by))
    kafka_cluster_ids = {w.root.kafka_cluster_id for w in observation.workers if w.root}
    return Plan(
        group_id=observation.group_id,
        kafka_cluster_id=", ".join(sorted(str(c) for c in kafka_cluster_ids)),
        target=target,
        workers=tuple(workers),
        task_downtime=tuple(
            predict(worker_id, observation) for worker_id in foreseen((c.worker_id for c in workers), observation)
        ),
    )


def next_target(observation: Observation) -> Mode:
    """Where an upgrade goes from here: to preparing until every worker is proven there and ready, then to enabled."""
    modes = {w.mode.verdict.mode for w in observation.not_stopped}
    prepared = all(mode is not None and mode.uses_transactional_leader for mode in modes)
    return Mode.ENABLED if prepared and not not_ready_for_enabled(observation) else Mode.PREPARING


def _change(
    worker: WorkerObservation, target: Mode, temporary: Former | None, after: str, *, is_stopped: bool, left_by: str
) -> WorkerChange:
    before, launch = worker.facts.digest or "", worker.facts.launch
    sets = properties_to_set(worker.facts, target, temporary)
    mode = "stopped" if is_stopped else str(worker.mode.verdict)
    if left_by:
        kind = ChangeKind.START
    elif is_stopped:
        kind = ChangeKind.NONE if before == after else ChangeKind.FILE_ONLY
    else:
        kind = ChangeKind.NONE if before == after and worker.mode.verdict.mode is target else ChangeKind.ROLL
    return WorkerChange(
        worker_id=worker.worker_id,
        kind=kind,
        mode=mode,
        declared=worker.facts.properties.get(MODE_PROPERTY),
        config=worker.facts.edit.name,
        config_before=before,
        config_after=after,
        version=worker.root.version if worker.root else "",
        sets_mode=MODE_PROPERTY in sets,
        isolation=worker.facts.properties.get(ISOLATION_PROPERTY),
        sets_isolation=ISOLATION_PROPERTY in sets,
        isolation_after=sets.get(ISOLATION_PROPERTY),
        start=launch.words,
        cwd=launch.cwd,
        variables=launch.variables,
        launch=launch.digest,
        left_by=left_by,
    )


def _differences(then: Plan, now: Plan) -> list[str]:
    lines = []
    if then.group_id != now.group_id or then.kafka_cluster_id != now.kafka_cluster_id:
        lines.append(
            f"another cluster: {then.group_id} on {then.kafka_cluster_id}, "
            f"now {now.group_id} on {now.kafka_cluster_id or 'unknown'}"
        )
    before = {change.worker_id: change for change in then.workers}
    after = {change.worker_id: change for change in now.workers}
    lines += [f"{worker_id} is gone from the roster" for worker_id in sorted(before.keys() - after.keys())]
    lines += [f"{worker_id} is new in the roster" for worker_id in sorted(after.keys() - before.keys())]
    for worker_id in sorted(before.keys() & after.keys()):
        old, new = before[worker_id], after[worker_id]
        if old.config_before != new.config_before:
            lines.append(f"the configuration of {worker_id} was edited ({new.config})")
        if old.launch != new.launch:
            lines.append(f"what starts {worker_id} was changed in the description ({_what_differs(old, new)})")
        if old.left_by != new.left_by:
            lines.append(f"{worker_id} was left down by {old.left_by or 'no rollout'}, now by {new.left_by or 'none'}")
        for what in ("mode", "version", "config"):
            if getattr(old, what) != getattr(new, what):
                lines.append(f"{what} of {worker_id}: {getattr(old, what)}, now {getattr(new, what)}")
    return lines or ["the plan's content"]


def _what_differs(old: WorkerChange, new: WorkerChange) -> str:
    """Which part of a start differs; the values of variables are not known here."""
    parts = {"start": old.start != new.start, "cwd": old.cwd != new.cwd, "env": old.variables != new.variables}
    return ", ".join(name for name, differs in parts.items() if differs) or "a value in start or env"
