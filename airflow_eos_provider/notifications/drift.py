"""Reports what an audit of a Connect cluster has found, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow.sdk import BaseNotifier

from airflow_eos_provider.notifications.message import MessageNotifier, task_lines

if TYPE_CHECKING:
    from airflow.sdk import Context


class ConnectDriftNotifier(MessageNotifier):
    """Formats a failed audit as a message and passes it to notifiers of other providers.

    The message goes to the task's log, and to each of ``notifiers`` as the template variable ``drift_message``, as in
    ``SlackNotifier(text="{{ drift_message }}")``. Drift that the audit before has reported is not reported again unless
    ``repeat`` says so.

    :param notifiers: notifiers that send the message.
    :param repeat: report the same drift in every audit until it is fixed.
    """

    variable = "drift_message"

    def __init__(self, *, notifiers: Sequence[BaseNotifier] = (), repeat: bool = False) -> None:
        super().__init__(notifiers=notifiers)
        self.repeat = repeat

    def message(self, context: Context) -> str | None:
        if not self.repeat and not getattr(context.get("exception"), "is_news", True):
            return None
        lines = [str(context.get("exception") or "The audit of a Kafka Connect cluster has failed; its log says why.")]
        lines += task_lines(context, "Audit")
        lines.append("'eos drift' and 'eos transactions audit' check again; 'eos status' shows the whole cluster.")
        return "\n".join(lines)
