"""A person approves a plan, and no answer is lost, however quickly it is given; operators that require the approval.

Airflow 3.3.2 loses answers that come at once, in two ways; both were seen in one of two such answers.

* The answer queues the task again before the scheduler has heard that the process which asked has ended. It then takes
  that process's end for the end of the new one and fails the task ("finished with state success, but the task
  instance's state attribute is queued", ``process_executor_events``). The answer itself is safe in the database and
  moves with the task instance to the next try. So this operator has retries, and a next try does not ask again: it
  lets a trigger read the answer, after a wait that keeps it out of the same race.
* The answer and the parking of the task cross each other. Row locks forbid that, but SQLite has none: the task is
  parked although its answer exists, and is not checked. So the task is parked with a deadline, at which the scheduler
  looks for an answer (``check_awaiting_input_timeouts``); if there is none, the task parks itself again.

An answer counts only for the plan that was shown. What was asked is kept in the task state store, written *after* the
question was put. So a question that clears an older answer is never mistaken for an answered question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.standard.operators.hitl import ApprovalOperator, HITLOperator
from airflow.sdk import NEVER_EXPIRE, BaseOperator  # type: ignore[attr-defined]
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput
from airflow.sdk.timezone import utcnow

from airflow_eos_provider.changes.change import MOST_LINES, Plan as ChangePlan
from airflow_eos_provider.changes.declared import CHANGES
from airflow_eos_provider.data_text import LINE_CHARACTERS, code_span, counted, one_line
from airflow_eos_provider.operators.failures import ROLL_RETRIES, ROLL_RETRY_DELAY, no_retry_where_pointless
from airflow_eos_provider.triggers.approval import ApprovalAnswerTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_eos_provider.rollout.plan.roll_plan import Plan


class NotAsked(Enum):
    """What an operator has in place of an approval where nobody is to be asked.

    It is none of the values that a template or an XCom can have. None is one: Airflow renders it for the result of an
    approval that has none, since somebody marked a rejected or unanswered one as success.
    """

    NOBODY = "nobody is asked"


#: The default of ``approval``: the operator's author wants nobody to be asked.
NOBODY_ASKED = NotAsked.NOBODY

#: Add these to the ``template_fields`` of an :class:`ApprovedOperator`.
APPROVED_FIELDS = ("plan", "approval", "reason", "take_over")


class ApprovedOperator(BaseOperator):
    """Carries out an approved plan under the group's lease.

    :param plan: the plan as the plan operator returns it.
    :param approval: result of :class:`~airflow_eos_provider.operators.approval.PlanApprovalOperator`; if given, its
        hash must be the plan's. An approval task that was marked as success has no result and does not count.
    :param reason: why, for the journal.
    :param take_over: fence a controller though its lease still runs; a template gives the words ``True`` or ``False``.
    """

    def __init__(
        self, *, plan: Any, approval: Any = NOBODY_ASKED, reason: str = "", take_over: bool | str = False, **kwargs: Any
    ) -> None:
        kwargs.setdefault("retries", ROLL_RETRIES)
        kwargs.setdefault("retry_delay", ROLL_RETRY_DELAY)
        super().__init__(**kwargs)
        self.plan = plan
        self.approval = approval
        self.reason = reason
        self.take_over = take_over


def require_approved(approval: object, plan_hash: str) -> None:
    """Go on only with the plan that was approved; :data:`NOBODY_ASKED` where nobody was to be asked."""
    if approval is NOBODY_ASKED:
        return
    if not isinstance(approval, Mapping):
        raise AirflowFailException(
            f"Plan {plan_hash} is not approved: it was rejected, or nobody has answered the task that asks. Marking "
            "that task as success is no approval. Nothing was changed. Start a new run and answer there; or omit the "
            "operator's parameter approval to apply plans without asking."
        )
    if approval.get("plan_hash") != plan_hash:
        raise AirflowFailException(
            f"Plan {plan_hash} is not the approved one ({approval.get('plan_hash')}). "
            "Nothing was changed. Start a new run."
        )


def actor_of(approval: object, context: Context) -> str:
    """On whose behalf a task acts, for the journal."""
    dag_run = context["dag_run"]
    approver = approval.get("approved_by") if isinstance(approval, Mapping) else None
    who = approver or dag_run.triggering_user_name or "nobody"
    return f"airflow {dag_run.dag_id}/{dag_run.run_id}, approved by {who}"


def is_true(value: bool | str) -> bool:
    """What a parameter says that may come from a template, which gives the words ``True`` or ``False``."""
    return str(value).lower() == "true"


@dataclass(frozen=True, slots=True)
class Approvable:
    """A plan as it is put to a person.

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
    """The plan of a task that came before."""
    from airflow_eos_provider.rollout.plan.roll_plan import Plan

    kind = document.get("kind") if isinstance(document, Mapping) else None
    if kind in CHANGES:
        return of_change(ChangePlan.from_dict(document))
    return of_roll(Plan.from_dict(document))


def of_roll(plan: Plan) -> Approvable:
    return Approvable(
        hash=plan.hash,
        short_hash=plan.short_hash,
        question=f"Roll Kafka Connect group {one_line(plan.group_id)} to {plan.target}? (plan {plan.short_hash})",
        summary=tuple(plan.summary()),
        in_the_log="Each worker with its task downtime, the lines of each file, and what starts the workers are in "
        "this task's log (tab Logs).",
        whole=plan.markdown(),
    )


def of_change(plan: ChangePlan) -> Approvable:
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


#: Key and schema of the note in the task state store. Renaming them breaks runs in flight: they would ask twice.
ASKED_KEY = "eos_plan_approval"
ASKED_SCHEMA = 1

#: Longer reasons are cut on the approval page; the journal keeps them whole.
REASON_CHARACTERS = 500

#: Stands for an approver whom Airflow does not name.
NOBODY = "nobody"

#: Each try can lose one answer at most, and only the first try asks; the others are for killed processes.
RETRIES = 5
RETRY_DELAY = timedelta(seconds=1)

#: A supervisor may notice only at its next heartbeat (``[workers] min_heartbeat_interval``, 5 s) that its task's
#: process has ended, and the scheduler looks every second or so. Each further try waits once more as long.
SETTLE_SECONDS = 8.0

#: When a parked task is looked at again: after as long as the question has been open, but within these limits. Only
#: an answer given in the moment of parking can need it, so the looks become rare: each one starts a process.
FIRST_LOOK = timedelta(seconds=20)
LAST_LOOK = timedelta(hours=1)


class PlanApprovalOperator(ApprovalOperator):
    """Show a plan in *Required Actions* and wait until a person approves or rejects it.

    The answer may come from Airflow's pages or its REST API (``hitlDetails``). Nothing is approved by time passing: a
    response timeout fails the task. A rejection is an answer, so the task succeeds, like Airflow's own
    ``ApprovalOperator``; all tasks after it are skipped under any trigger rule. With ``fail_on_reject`` the task
    fails instead, without a retry.

    :param plan: the plan as ``to_dict`` gives it: of a roll
        (:class:`~airflow_eos_provider.rollout.plan.roll_plan.Plan`), or of a change
        (:class:`~airflow_eos_provider.changes.change.Plan`).
    :param reason: reason for the change, shown below the plan, quoted as the text of the user who started the run.
    :param take_over: whether the run asks that a controller is fenced though its lease still runs; shown below the
        plan. A template gives the words ``True`` or ``False``.
    :param require_other_approver: the user who started the run may not approve it. Anyone may approve a scheduled run.
        Any other run whose user is unknown is refused before an approver is asked.
    :param response_timeout: how long to wait for an answer; without it, for ever.
    :param kwargs: of ``ApprovalOperator``, such as ``assigned_users`` and ``notifiers``.
    :returns: ``{"plan_hash", "approved_by", "approved_at"}``, which the roll requires; nothing after a rejection.
    :raises AirflowFailException: not answered in time, the question on display is about another plan, approved by the
        one who has asked, or rejected with ``fail_on_reject``.
    """

    template_fields: Sequence[str] = (*ApprovalOperator.template_fields, "plan", "reason", "take_over")

    def __init__(
        self,
        *,
        plan: Any,
        reason: str = "",
        take_over: bool | str = False,
        require_other_approver: bool = False,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("retries", RETRIES)
        kwargs.setdefault("retry_delay", RETRY_DELAY)
        kwargs.setdefault("subject", "Approve a change of a Kafka Connect cluster")
        super().__init__(**kwargs)
        self.plan = plan
        self.reason = reason
        self.take_over = take_over
        self.require_other_approver = require_other_approver

    def execute(self, context: Context) -> Any:
        plan = self._read_plan()
        requester = self._requester(context)
        self.subject = plan.question
        self.body = approval_body(plan, self.reason, requester, take_over=is_true(self.take_over))
        asked = context["task_state_store"].get(ASKED_KEY)
        if isinstance(asked, dict) and asked_for(asked, plan.hash, _clear_number(context)):
            self._wait_for_the_answer(context, asked)
        self._ask(context, plan)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any] | None:
        """Called with a person's answer, by the API server or by :class:`ApprovalAnswerTrigger`."""
        plan = self._read_plan()
        asked = context["task_state_store"].get(ASKED_KEY)
        asked_hash = asked.get("plan_hash") if isinstance(asked, dict) else None
        if not isinstance(asked, dict) or asked_hash != plan.hash:
            raise AirflowFailException(
                f"The answer is about plan {asked_hash}, the plan is now {plan.hash}. Start a new run."
            )
        if event.get("error_type") == "timeout" and not self._is_too_late(asked):
            self._park(asked)
        # Not ApprovalOperator's own: its failure is retried, and it skips only the next task, although a later roll of
        # the DAG runs after a task that was skipped.
        answer = HITLOperator.execute_complete(self, context=context, event=event)
        user = (answer["responded_by_user"] or {}).get("name") or NOBODY
        approved = answer["chosen_options"] == [self.APPROVE]
        self.hitl_summary_extra["approved"] = approved
        if not approved:
            self._reject(
                context, f"Plan {plan.short_hash} was rejected by {one_line(user)}: nothing is changed.", answer
            )
            return None
        if self.require_other_approver:
            refusal = not_another_person(self._requester(context), user)
            if refusal:
                raise AirflowFailException(f"{refusal} Nothing is changed. Clear this task to ask again.")
        self.log.info("Plan %s was approved by %s.", plan.short_hash, one_line(user))
        return {"plan_hash": plan.hash, "approved_by": user, "approved_at": answer["responded_at"].isoformat()}

    def _reject(self, context: Context, what: str, answer: Mapping[str, Any]) -> None:
        if self.fail_on_reject or answer["chosen_options"] != [self.REJECT]:
            raise AirflowFailException(what)
        self.log.warning("%s", what)
        following = context["task"].get_flat_relatives(upstream=False)
        self.skip(ti=context["ti"], tasks=[task for task in following if not task.is_teardown])

    def process_trigger_event_error(self, event: dict[str, Any]) -> None:
        """No answer in time, or one that cannot be read: a retry would only ask once more, so there is none."""
        raise AirflowFailException(f"The plan was not approved ({event['error_type']}): {event['error']}")

    def _requester(self, context: Context) -> str | None:
        """Who has started the run; None if it was a schedule or if it is not known."""
        requester = context["dag_run"].triggering_user_name or None
        if self.require_other_approver and requester is None and _run_type(context) != "scheduled":
            raise AirflowFailException(
                "require_other_approver needs to know who has started this run, and Airflow does not (a run of type "
                f"{_run_type(context)}). Nothing is changed. Start it on Airflow's pages or by its REST API, logged in."
            )
        return requester

    def _read_plan(self) -> Approvable:
        with no_retry_where_pointless():
            return approvable(self.plan)

    def _ask(self, context: Context, plan: Approvable) -> None:
        shown = self._put_question(context)
        if plan.hash not in shown:
            raise AirflowFailException(
                "Airflow keeps the text of the first question in a run, and that was about another plan. "
                f"A person would see the old plan and approve {plan.short_hash}. Start a new run instead of clearing."
            )
        asked: dict[str, Any] = {
            "schema": ASKED_SCHEMA,
            "plan_hash": plan.hash,
            "clear_number": _clear_number(context),
            "asked_at": utcnow().isoformat(),
        }
        context["task_state_store"].set(ASKED_KEY, asked, retention=NEVER_EXPIRE)
        self.log.info("Waiting for a person to approve plan %s:\n%s", plan.hash, plan.whole)
        for notifier in self.notifiers:
            notifier(context)
        self._park(asked)

    def _park(self, asked: Mapping[str, Any]) -> NoReturn:
        """Wait without a process, until an answer comes or the next look is due."""
        now = utcnow()
        pause = min(max(now - _asked_at(asked), FIRST_LOOK), LAST_LOOK)
        if self.response_timeout:
            pause = min(pause, max(_asked_at(asked) + self.response_timeout - now, timedelta()))
        raise TaskAwaitingInput(method_name="execute_complete", timeout=pause)

    def _is_too_late(self, asked: Mapping[str, Any]) -> bool:
        return self.response_timeout is not None and utcnow() >= _asked_at(asked) + self.response_timeout

    def _put_question(self, context: Context) -> str:
        """What ``upsert_hitl_detail`` of the task SDK does, but with the text that is on display as its result."""
        from airflow.sdk.api.datamodels._generated import HITLUser
        from airflow.sdk.execution_time.comms import CreateHITLDetailPayload
        from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

        stored = SUPERVISOR_COMMS.send(
            CreateHITLDetailPayload(
                ti_id=context["task_instance"].id,
                options=self.options,
                subject=self.subject,
                body=self.body,
                defaults=None,
                multiple=False,
                params=self.serialized_params,
                assigned_users=[HITLUser(id=user["id"], name=user["name"]) for user in self.assigned_users or []],
            )
        )
        return str(getattr(stored, "body", "") or "")

    def _wait_for_the_answer(self, context: Context, asked: Mapping[str, Any]) -> None:
        tries = context["task_instance"].try_number
        self.log.info(
            "Plan %s was put to a person at %s already; the answer counts, if there is one.",
            asked["plan_hash"],
            asked["asked_at"],
        )
        deadline = _asked_at(asked) + self.response_timeout if self.response_timeout else None
        self.defer(
            trigger=ApprovalAnswerTrigger(
                ti_id=context["task_instance"].id,
                options=self.options,
                params=self.serialized_params,
                timeout_datetime=deadline,
                delay_seconds=SETTLE_SECONDS * max(1, tries - 1),
            ),
            method_name="execute_complete",
        )


def asked_for(asked: Mapping[str, Any], plan_hash: str, clear_number: int) -> bool:
    """Whether this note is about this plan and this attempt of the run; clearing a task means to ask again."""
    return (
        asked.get("schema") == ASKED_SCHEMA
        and asked.get("plan_hash") == plan_hash
        and asked.get("clear_number") == clear_number
    )


def approval_body(plan: Approvable, reason: str, requester: str | None = None, *, take_over: bool = False) -> str:
    """What the person sees: the plan, the whole hash; below all that, what others have given: who asks, and why.

    The buttons come below this text. A roll is shown in a few lines that do not grow with its workers; any other plan
    in full up to a bound. The whole plan is in the log.

    It depends on nothing else, so the same plan shows the same text.
    """
    lines = [*plan.summary, "", f"Plan hash: `{plan.hash}`", ""]
    lines += [
        f"Approving applies exactly this plan; if the cluster moves before that, nothing is done. {plan.in_the_log}"
    ]
    if take_over:
        lines += ["", "**Take over**: a controller that has the group is fenced, though its lease still runs."]
    if requester:
        lines += ["", f"Asked by: {code_span(requester)}"]
    if reason:
        lines += ["", f"Reason given: {code_span(reason, REASON_CHARACTERS)}"]
    return "\n".join(lines)


def not_another_person(requester: str | None, approver: str) -> str | None:
    """Why this approval does not count where two persons are wanted; None if it does."""
    if approver == NOBODY:
        return "Airflow does not know who has approved the plan, and another person has to (require_other_approver)."
    if requester is not None and requester.strip().casefold() == approver.strip().casefold():
        return (
            f"{one_line(approver)} has started this run, so another person has to approve it (require_other_approver)."
        )
    return None


def _asked_at(asked: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(asked["asked_at"])


def _run_type(context: Context) -> str:
    """``manual``, ``scheduled``, ``backfill``, ``asset_triggered`` or another of Airflow's words."""
    run_type = context["dag_run"].run_type
    return str(getattr(run_type, "value", run_type))


def _clear_number(context: Context) -> int:
    return context["dag_run"].clear_number or 0
