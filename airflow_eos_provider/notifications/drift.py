"""Reports what an audit of a Connect cluster has found, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

if TYPE_CHECKING:
    from airflow.sdk import Context


class ConnectDriftNotifier(BaseNotifier):
    """Makes one message of a failed audit, and passes it to the notifiers of other providers.

    The message goes to the task's log, and to each of ``through`` as the template variable ``drift_message``, such as
    ``SlackNotifier(text="{{ drift_message }}")``. An audit runs every half minute, so drift that the audit before has
    reported is not reported again unless ``repeat`` says so.

    :param through: notifiers that carry the message on.
    :param repeat: report it at every audit for as long as it lasts.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, through: Sequence[BaseNotifier] = (), repeat: bool = False) -> None:
        super().__init__()
        self.through = tuple(through)
        self.repeat = repeat

    def notify(self, context: Context) -> None:
        if not self.repeat and not getattr(context.get("exception"), "is_news", True):
            return
        message = drift_message(context)
        self.log.error("%s", message)
        failed = []
        for notifier in self.through:
            # One channel that is down must not keep the message from the next one.
            try:
                copy(notifier)({**context, "drift_message": message})  # rendering overwrites its templates
            except Exception as error:
                failed.append(f"{type(notifier).__name__}: {error}")
        if failed:
            raise RuntimeError(f"Not reported through {'; '.join(failed)}")


def drift_message(context: Any) -> str:
    """The message of one failed audit: what was found, what to do, and where to read more."""
    ti = context.get("ti") or context.get("task_instance")
    lines = [str(context.get("exception") or "The audit of a Kafka Connect cluster has failed; its log says why.")]
    if ti is not None:
        lines.append(f"Audit: {ti.dag_id}, {ti.task_id}, run {ti.run_id}")
        if getattr(ti, "log_url", None):
            lines.append(f"Log: {ti.log_url}")
    lines.append("'eos drift' looks again, so does 'eos transactions audit', and 'eos status' shows the whole cluster.")
    return "\n".join(lines)
