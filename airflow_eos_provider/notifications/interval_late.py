"""Reports an interval that is not complete when it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_eos_provider.links.page import interval_url
from airflow_eos_provider.notifications.message import MessageNotifier, task_lines

if TYPE_CHECKING:
    from airflow.sdk import Context


class IntervalLateNotifier(MessageNotifier):
    """Formats a late or failed interval as a message and passes it to notifiers of other providers.

    Give it as ``on_failure_callback`` of an ``IntervalCompleteSensor``, whose ``timeout`` says when an interval is
    late, or of the task that writes it. The message goes to the task's log, and to each of ``notifiers`` as the
    template variable ``eos_message``.

    :param notifiers: notifiers that send the message.
    """

    def message(self, context: Context) -> str:
        from airflow_eos_provider.errors import EosError
        from airflow_eos_provider.hooks.pipeline import run_of

        task = context.get("task")
        pipeline, group = (str(getattr(task, name, "") or "") for name in ("pipeline", "group_id"))
        lines = []
        try:
            run = run_of(context, pipeline, getattr(task, "interval", None), getattr(task, "revision", 1) or 1).name
        except (EosError, KeyError, AttributeError):  # not a task of one interval
            lines.append("An interval is late; which one is in the task's log.")
        else:
            lines.append(f"{run} of group {group} is not complete.")
            conn_id = str(getattr(task, "kafka_conn_id", "") or "")
            lines.append(f"On the page: {interval_url(conn_id, group, pipeline, run)}")
            lines.append(f"'eos intervals show \"{run}\" --group {group}' shows the slices that are left.")
        error = context.get("exception")
        if error is not None:
            lines.append(f"Why: {error}")
        return "\n".join([*lines, *task_lines(context, "Task")])
