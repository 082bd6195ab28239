"""Workers that a roll has left down: it had announced their restart, and they do not run.

Such a worker looks like one that its owner has stopped. Only the journal shows the difference.
"""

from __future__ import annotations

from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.records import RolloutState
from airflow_eos_provider.rollout.observe.observation import Observation


def left_down(content: JournalContent, observation: Observation) -> dict[str, str]:
    """The rollout that left it down, by worker.

    Only the newest rollout is asked: one that was superseded has handed its workers on to the plan that came after it.
    """
    standing = [record for record in content.rollouts.values() if record.state is not RolloutState.SUPERSEDED]
    newest = max(standing, key=lambda record: record.started_at, default=None)
    if newest is None or newest.state is RolloutState.DONE:
        return {}
    steps = content.steps.get(newest.rollout_id, {})
    stopped = [worker.worker_id for worker in observation.stopped]
    return {w: newest.rollout_id for w in stopped if w in steps and steps[w].status.is_half_done}
