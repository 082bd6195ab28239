"""Looks for drift: one observation, the journal before and after it, and a question to each unknown member."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from typing import Self

from airflow_eos_provider.connect import mode_evidence
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.journal.journal import read_journal
from airflow_eos_provider.rollout.drift.drift import Drift, Expected, find_drift, newest_rollout
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.observe.observer import Observer
from airflow_eos_provider.rollout.roll_history import ForeignRollout, Rollout, whole_history

#: A rebalance, a worker that is just starting and a rollout that just begins or ends are over by then, mostly.
STABLE_SECONDS = 20.0

#: An unknown member that does not answer within this many seconds is not asked further.
UNKNOWN_MEMBER_SECONDS = 3.0

_PAUSE_SECONDS = 1.0


class DriftWatch:
    """Looks at one cluster as often as asked; changes nothing. A context manager.

    :param cluster: the description of the cluster.
    :param mode: the mode that is meant, whatever the last rollout has made.
    :param accept: SHA-256 of workers' files that are as meant though no rollout made them.
    """

    def __init__(self, cluster: ConnectCluster, *, mode: Mode | None = None, accept: Collection[str] = ()) -> None:
        self.cluster = cluster
        self._mode = mode
        self._accept = tuple(accept)
        self._observer = Observer(cluster)
        self.members: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._observer.session.close()

    def look(self, *, stable_seconds: float = STABLE_SECONDS) -> Drift:
        """One look; while nothing is found but something cannot be known, it is repeated for a while."""
        deadline = time.monotonic() + stable_seconds
        drift = self._look()
        while drift.doubts and not drift.findings and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
            drift = self._look()
        return drift

    def _look(self) -> Drift:
        before = self._newest()
        observation = self._observer.observe()
        newest = self._newest()
        after = newest if isinstance(newest, Rollout) else None
        members = observation.group.members if observation.group else ()
        self.members = tuple(sorted(member.member_id for member in members))
        unknown = {worker_id: self._ask(worker_id, observation) for worker_id in observation.unknown_members}
        expected = Expected.after(after).stated(self._mode, self._accept)
        drift = find_drift(observation, expected, unknown)
        if isinstance(newest, ForeignRollout):
            what = f"what rollout {newest.rollout_id} has left: it {newest.found.why}"
            drift = replace(drift, doubts=(*drift.doubts, what))
        if _stand(before) != _stand(newest):  # what was seen belongs to neither
            return replace(drift, findings=(), doubts=("the group while a rollout began or ended",))
        return drift

    def _newest(self) -> Rollout | ForeignRollout | None:
        """The rollout that the cluster should be as left by; where another version has written it, nothing is expected
        of the cluster but what holds for any."""
        rollouts = whole_history(read_journal(self._observer.session.kafka, self.cluster.group_id))
        if rollouts and isinstance(rollouts[0], ForeignRollout):
            return rollouts[0]
        return newest_rollout([one for one in rollouts if isinstance(one, Rollout)])

    def _ask(self, worker_id: str, observation: Observation) -> bool | None:
        """Whether an unknown member is enabled. It gets no credentials: its owner is not known."""
        settings = replace(
            self.cluster.rest,
            username=None,
            password=None,
            token=None,
            client_certificate=None,
            client_key=None,
            timeout_seconds=UNKNOWN_MEMBER_SECONDS,
        )
        try:
            with ConnectRest(observation.members[worker_id].url, settings, retry_seconds=0.0) as rest:
                return mode_evidence.probe(rest).runs_exactly_once
        except EosError:
            return None


def _stand(rollout: Rollout | ForeignRollout | None) -> tuple[str, str] | None:
    if rollout is None:
        return None
    return rollout.rollout_id, rollout.state if isinstance(rollout, Rollout) else rollout.found.why
