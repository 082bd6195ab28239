"""A change of a group that is no roll, carried out under the group's one lease.

Each step is announced before it begins and closed after it. Whoever is killed in between leaves a record that says how
far the change has come; the same command takes it up there. A roll and a change exclude one another, also while one of
them is only interrupted: what it has left behind is nothing that the other can rely on.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from airflow_eos_provider.errors import (
    ConfigurationError,
    EosError,
    FencedError,
    NothingDoneError,
    RefusedError,
    RestRefusedError,
)
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.journal import Journal
from airflow_eos_provider.journal.records import (
    ChangeRecord,
    RolloutState,
)

#: Between two looks of a wait, seconds.
PAUSE_SECONDS = 0.3

T = TypeVar("T")


class GroupChange:
    """A change under way; the lease is held.

    :ivar taken_up: whether another process had begun it.
    :ivar scope: before the name of each step, where a change has the same steps for several connectors.
    :ivar journal_is_gone: whether its last step has removed the journal, so that no end of it can be written.
    """

    def __init__(self, journal: Journal, record: ChangeRecord, *, taken_up: bool) -> None:
        self._journal = journal
        self.record = record
        self.taken_up = taken_up
        self.scope = ""
        self.journal_is_gone = False

    def is_done(self, step: str) -> bool:
        """Whether a step is over, in this process or in one before."""
        return self.scope + step in self.record.done

    @property
    def has_begun(self) -> bool:
        """Whether a step of this scope is over or under way."""
        return any(step.startswith(self.scope) for step in (*self.record.done, self.record.under_way) if step)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Announce a step, and close it when the body has ended without an error."""
        name = self.scope + name
        self._write(replace(self.record, under_way=name))
        yield
        done = tuple(dict.fromkeys((*self.record.done, name)))  # a step may be taken once more
        self._write(replace(self.record, under_way="", done=done))

    @contextmanager
    def removal_of_the_journal(self) -> Iterator[None]:
        """Announce and confirm the last step, which removes the journal itself: the change ends with it."""
        name = "remove the journal"
        self._write(replace(self.record, under_way=name))
        self.confirm(name)
        yield
        self.journal_is_gone = True

    def replan(self, about: str, plan: Mapping[str, Any]) -> None:
        """Write another plan down, before the first step."""
        self._write(replace(self.record, about=about, plan=plan))

    def confirm(self, act: str) -> None:
        """Prove, right before an act, that no other controller has taken over."""
        self._journal.confirm(act)

    def renew(self) -> None:
        """Keep the lease while waiting."""
        self._journal.renew()

    def until(self, look: Callable[[], T | None], what: str, seconds: float) -> T:
        """Look again and again, keeping the lease, until there is something."""
        deadline = time.monotonic() + seconds
        while not (found := look()):
            if time.monotonic() >= deadline:
                raise EosError(
                    f"Timed out after {seconds:.0f} s waiting for {what}.",
                    remedy="See 'eos status'. Run the same command again to resume; 'eos changes close' closes the "
                    "change without touching the connector.",
                )
            self.renew()
            time.sleep(PAUSE_SECONDS)
        return found

    def _write(self, record: ChangeRecord, event: str = "") -> None:
        self._journal.write_change(record, event)
        self.record = record

    def _was_refused(self, error: BaseException) -> bool:
        """Whether the error is final, and no step was taken before it."""
        if self.taken_up or self.record.done:
            return False
        if self.record.under_way:
            return isinstance(error, RestRefusedError)
        return isinstance(error, (ConfigurationError, RefusedError))

    def _end(self, state: RolloutState, note: str = "") -> None:
        under_way = "" if state is RolloutState.DONE else self.record.under_way
        self._write(replace(self.record, state=state, note=note, under_way=under_way), str(state))


@contextmanager
def group_change(
    journal: Journal,
    kind: str,
    about: str,
    plan: Mapping[str, Any],
    *,
    take_over: bool = False,
    begins_again: bool = False,
) -> Iterator[GroupChange]:
    """Begin a change, or take up the unfinished one of this very plan; it is done when the body ends.

    :param begins_again: close an unfinished change of this kind with another plan: this one was made from what that one
        has left.

    The change is closed if the body has changed nothing: it raises :class:`NothingDoneError`, is refused before its
    first step, or Connect refuses that step for good. After any other error it can be taken up.
    """
    try:
        content = journal.acquire(take_over=take_over)
        require_no_open_rollout(content)
        found = content.open_change
        if found is not None and found.plan.get("hash") != plan["hash"]:
            if not begins_again or found.kind != kind:
                content.require_no_open_change()
            note = "begun again from what it has left"
            journal.write_change(replace(found, state=RolloutState.ABORTED, note=note), str(RolloutState.ABORTED))
            found = None
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        fresh = ChangeRecord(
            change_id=f"{stamp}-{kind.replace(' ', '-')}-{uuid.uuid4().hex[:6]}",
            kind=kind,
            about=about,
            plan=plan,
            state=RolloutState.RUNNING,
            started_at=time.time(),
        )
        record = replace(
            found or fresh, state=RolloutState.RUNNING, actor=journal.actor, reason=journal.reason, note=""
        )
        change = GroupChange(journal, record, taken_up=found is not None)
        change._write(record, "taken up" if change.taken_up else "begun")
        try:
            yield change
        except FencedError:
            raise
        except BaseException as error:
            is_over = isinstance(error, NothingDoneError) or change._was_refused(error)
            _leave(change, RolloutState.ABORTED if is_over else RolloutState.PAUSED, error)
            raise
        if not change.journal_is_gone:
            change._end(RolloutState.DONE)
    finally:
        journal.close()


def _leave(change: GroupChange, state: RolloutState, error: BaseException) -> None:
    """Write down that a change has failed; if even that is not possible, its lease ends by itself."""
    note = error.found if isinstance(error, EosError) else type(error).__name__
    try:
        change._end(state, note)
    except EosError as unwritten:
        error.add_note(f"The change stays {change.record.state} in the journal: {unwritten.found}")


def require_no_open_rollout(content: JournalContent) -> None:
    """Go on only if no roll of the group is left in its midst: its workers may run in different modes."""
    unfinished = [record for record in content.rollouts.values() if record.state.is_open]
    if unfinished:
        newest = max(unfinished, key=lambda record: record.started_at)
        raise RefusedError(
            f"The rollout {newest.rollout_id} of this group is {newest.state}, not finished.",
            remedy=f"Finish it ('eos rollout resume {newest.rollout_id}') or end it "
            f"('eos rollout abort {newest.rollout_id}').",
        )
