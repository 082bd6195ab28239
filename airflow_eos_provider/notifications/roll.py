"""Reports a roll that has stopped: paused, or at a worker's gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_eos_provider.errors import EosError, GateFailedError, RolloutPausedError, StopRequestedError
from airflow_eos_provider.links.page import history_url
from airflow_eos_provider.notifications.message import MessageNotifier, task_lines

if TYPE_CHECKING:
    from airflow.sdk import Context


class ConnectRollNotifier(MessageNotifier):
    """Formats a stopped roll as a message and passes it to notifiers of other providers.

    Give it as ``on_failure_callback`` (a roll that is not tried again) and, to hear of a pause at its first try, as
    ``on_retry_callback`` of :class:`~airflow_eos_provider.operators.rolling_upgrade.ConnectRollingUpgradeOperator`;
    ``upgrade_dag(notifiers=…)`` does both. The message goes to the task's log, and to each of ``notifiers`` as the
    template variable ``eos_message``.

    :param notifiers: notifiers that send the message.
    """

    def message(self, context: Context) -> str:
        error = _cause(context.get("exception"))
        conn_id = str(getattr(context.get("task"), "conn_id", "") or "")
        lines = [_headline(error), *([str(error)] if error is not None else [])]
        lines += task_lines(context, "Task")
        if conn_id:
            lines.append(f"History of the cluster: {history_url(conn_id)}")
        lines.append("'eos rollout show' shows its journal; clear the task to resume.")
        return "\n".join(lines)


def _headline(error: BaseException | None) -> str:
    if isinstance(error, GateFailedError):
        return "A worker did not pass its gate. No further worker is touched; the message says how this one is now."
    if isinstance(error, StopRequestedError):
        return "The roll has stopped as requested; no further worker is touched."
    if isinstance(error, RolloutPausedError):
        return "The roll has paused: eos cannot tell whether continuing is safe. No further worker is touched."
    return "A task of a roll has failed; no further worker is touched."


def _cause(error: Any) -> BaseException | None:
    """The error of this package behind Airflow's."""
    found = error
    while found is not None and not isinstance(found, EosError):
        found = found.__cause__
    return found or error
