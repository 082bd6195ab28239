"""Looks for drift: one observation, the journal before and after it, and a question to each unknown member."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace

from airflow_eos_provider.connect import modes
from airflow_eos_provider.connect.cluster import ConnectCluster
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.rollout.drift import Drift, Expected, Stranger, find_drift, newest_rollout
from airflow_eos_provider.rollout.history import Rollout, history
from airflow_eos_provider.rollout.journal import read_journal
from airflow_eos_provider.rollout.observation import Observation
from airflow_eos_provider.rollout.observer import Observer

#: A rebalance, a worker that is just starting and a rollout that just begins or ends are over by then, mostly.
CALM_SECONDS = 20.0

#: A stranger that does not answer within this many seconds is not asked further.
STRANGER_SECONDS = 3.0

_PAUSE_SECONDS = 1.0


class DriftWatch:
    """Looks at one cluster as often as asked; changes nothing.

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

    def look(self, *, calm_seconds: float = CALM_SECONDS) -> Drift:
        """One look; while nothing is found but something cannot be told, it is repeated for a while.

        :param calm_seconds: for how long.
        :raises EosError: the journal cannot be read, or the description is wrong as a whole.
        """
        deadline = time.monotonic() + calm_seconds
        drift = self._look()
        while drift.doubts and not drift.findings and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
            drift = self._look()
        return drift

    def _look(self) -> Drift:
        before = self._rollout()
        observation = self._observer.observe()
        after = self._rollout()
        members = observation.group.members if observation.group else ()
        self.members = tuple(sorted(member.member_id for member in members))
        strangers = [self._ask(worker_id, observation) for worker_id in observation.unknown_members]
        expected = Expected.after(after).stated(self._mode, self._accept)
        drift = find_drift(observation, expected, strangers)
        if _stand(before) != _stand(after):  # what was seen belongs to neither
            return replace(drift, findings=(), doubts=("the group while a rollout began or ended",))
        return drift

    def _rollout(self) -> Rollout | None:
        return newest_rollout(history(read_journal(self.cluster.kafka, self.cluster.group_id)))

    def _ask(self, worker_id: str, observation: Observation) -> Stranger:
        """Whether an unknown member is enabled. It gets no credentials: nobody knows whose it is."""
        settings = replace(
            self.cluster.rest,
            username=None,
            password=None,
            token=None,
            client_certificate=None,
            client_key=None,
            timeout_seconds=STRANGER_SECONDS,
        )
        try:
            with ConnectRest(observation.members[worker_id].url, settings, retry_seconds=0.0) as rest:
                return Stranger(worker_id, modes.probe(rest).runs_exactly_once)
        except EosError:
            return Stranger(worker_id)


def _stand(rollout: Rollout | None) -> tuple[str, str] | None:
    return (rollout.rollout_id, rollout.state) if rollout else None
