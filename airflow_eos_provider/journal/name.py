"""The name of a group's journal, for tasks on executors as well, which lack what reads a journal."""

from __future__ import annotations


def journal_topic(group_id: str) -> str:
    """The journal topic of a group; its transactional id has the same name."""
    return f"eos-rollout-{group_id}"
