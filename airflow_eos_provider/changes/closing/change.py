"""The declaration that closes an unfinished roll or change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from airflow_eos_provider.acls.tool_rules import journal_rights
from airflow_eos_provider.changes.change import TAKE_OVER_HELP, Change, Done, Plan, option

if TYPE_CHECKING:
    from airflow_eos_provider.connect.connect_session import ConnectSession
    from airflow_eos_provider.journal.journal import Journal


@dataclass(frozen=True, slots=True)
class CloseRequest:
    """Which roll or change is closed."""

    which: str = option(
        "The id of the roll or change, or its beginning, such as 20261121T2336; default: the only open one.",
        "",
        title="Which",
        argument=True,
        metavar="ID",
    )
    take_over: bool = option(TAKE_OVER_HELP, False, title="Take over")


class Close(Change[CloseRequest]):
    """The end of an unfinished roll or change."""

    name = "changes close"
    title = "Close an unfinished roll or change"
    summary = "Close an unfinished roll or change, or stop a running roll for good."
    details = (
        "An unfinished roll or change blocks every other change of the group. Finish it if you can: run its command "
        "again, or clear the failed task of its run. A closed one can never be resumed. No worker and no connector is "
        "touched: a stopped connector stays stopped, and workers keep their modes. A running roll is asked to stop "
        "before its next action, like 'eos rollout abort'. A running change is refused; changes are short. With take "
        "over, the current controller is fenced instead; use it if that controller hangs."
    )
    request = CloseRequest
    examples = (
        "eos changes close --reason 'the connector is deleted'",
        "eos changes close 20261121T2336 --plan 3f1c09ab77d2",
    )
    dag = "close_dag"
    rights = (journal_rights,)
    closes = True

    def plan(self, session: ConnectSession, request: CloseRequest) -> Plan:
        """What would be closed. Of a roll, the half-done workers are asked whether they answer."""
        from airflow_eos_provider.changes.closing.close import plan_close

        return plan_close(session, self.name, asdict(request))

    def apply(self, session: ConnectSession, plan: Plan, act: Journal, report: Callable[[str], None]) -> Done:
        """Close the roll or change of the plan, if it has not changed since."""
        from airflow_eos_provider.changes.closing.close import close

        half_done = close(session, plan, act)
        check = "its restart was announced, but it has not passed its gate. Check with 'eos status' that it runs."
        document = {"closed": plan.about, "half_done": list(half_done)}
        return Done(document, (f"{plan.about} is closed.", *(f"{worker}: {check}" for worker in half_done)))


CLOSE = Close()
