"""What the notifiers share: one message, into the task's log and through the notifiers of other providers."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

if TYPE_CHECKING:
    from airflow.sdk import Context


class MessageNotifier(BaseNotifier):
    """Makes a message, and passes it on.

    :param notifiers: notifiers that carry the message on.
    """

    template_fields: Sequence[str] = ()

    #: The name by which templates of ``notifiers`` find the message.
    variable = "eos_message"

    def __init__(self, *, notifiers: Sequence[BaseNotifier] = ()) -> None:
        super().__init__()
        self.notifiers = tuple(notifiers)

    def message(self, context: Context) -> str | None:
        """The message; None if there is nothing to report."""
        raise NotImplementedError

    def notify(self, context: Context) -> None:
        message = self.message(context)
        if message is None:
            return
        self.log.error("%s", message)
        failed = []
        for notifier in self.notifiers:
            # One channel that is down must not keep the message from the next one.
            try:
                copy(notifier)({**context, self.variable: message})  # rendering overwrites its templates
            except Exception as error:
                failed.append(f"{type(notifier).__name__}: {error}")
        if failed:
            raise RuntimeError(f"Not reported through {'; '.join(failed)}")


def task_lines(context: Any, what: str) -> list[str]:
    """Which task reports this, and where its log is; empty if it is not known."""
    ti = context.get("ti") or context.get("task_instance")
    if ti is None:
        return []
    log = [f"Log: {ti.log_url}"] if getattr(ti, "log_url", None) else []
    return [f"{what}: {ti.dag_id}, {ti.task_id}, run {ti.run_id}", *log]
