"""Task downtime when the leader is restarted first, against a worker that does not lead.

Three workers in ``enabled``, a file source and a mirror with three tasks. Each trial restarts one worker and counts the
seconds until every task runs again, placed on a member, as a rollout's gate sees it. The leader of the moment is
restarted three times in a row; then one worker that does not lead, and right after it the leader, which should end the
delay; last one worker that does not lead, with the delay waited out.
"""

from __future__ import annotations

import time

from rich.console import Console

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.rollout.gate.expectation import Baseline, Expectation
from airflow_eos_provider.rollout.gate.gate import evaluate
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.observe.observer import Observer
from tests.benchmarks.result import Result, own_lab

#: Connect's default, and a short one as labs use it.
DELAYS_MS = (3_000, 300_000)
LEADER_TRIALS = 3


def run(console: Console) -> list[Result]:
    results = []
    for delay_ms in DELAYS_MS:
        with own_lab(f"order-{delay_ms}", workers=3, mode=Mode.ENABLED, rebalance_delay_ms=delay_ms) as lab:
            results += _measure(lab, delay_ms, console)
    return results


def _measure(lab: Lab, delay_ms: int, console: Console) -> list[Result]:
    create_connectors(lab)
    observer = Observer(lab.cluster())
    baseline = wait_until_whole(observer, Baseline(), time.monotonic() + 120)[1]
    leader_seconds = []
    led = []
    for trial in range(LEADER_TRIALS):
        leader = observer.observe().leader_id
        assert leader is not None
        led.append(leader)
        leader_seconds.append(_restart(observer, [leader], baseline, delay_ms))
        console.print(f"delay {delay_ms} ms: leader {leader} restarted, trial {trial + 1}: {leader_seconds[-1]:.1f} s")
    console.print(f"delay {delay_ms} ms: {len(set(led))} different workers led in {LEADER_TRIALS} restarts")
    ended = _restart(observer, [_follower(observer), None], baseline, delay_ms)
    console.print(f"delay {delay_ms} ms: a follower restarted, then the leader: {ended:.1f} s")
    waited = _restart(observer, [_follower(observer)], baseline, delay_ms)
    console.print(f"delay {delay_ms} ms: a follower restarted, the delay waited out: {waited:.1f} s")
    median = sorted(leader_seconds)[len(leader_seconds) // 2]
    return [
        Result(
            f"stand_still_leader_delay_{delay_ms}_ms",
            median,
            waited,
            "lower",
            "s",
            f"task downtime: leader restarted (median of {LEADER_TRIALS}) against a follower restarted",
        ),
        Result(
            f"stand_still_ended_delay_{delay_ms}_ms",
            ended,
            waited,
            "lower",
            "s",
            "task downtime: follower restarted, then the leader to end the delay, against the delay waited out",
        ),
    ]


def _follower(observer: Observer) -> str:
    observation = observer.observe()
    return next(w.worker_id for w in observation.workers if w.worker_id != observation.leader_id)


def create_connectors(lab: Lab) -> None:
    lines = lab.data_dir / "lines.txt"
    lines.write_text("".join(f"line {n}\n" for n in range(1000)), encoding="utf-8")
    for topic in ("lines", "src.lines"):
        lab.create_topic(topic, 3)
    with ConnectRest(lab.connect_urls[0]) as rest:
        rest.create(
            "lines",
            {
                "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
                "tasks.max": "1",
                "file": str(lines),
                "topic": "lines",
            },
        )
        rest.create(
            "mirror",
            {
                "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
                "tasks.max": "3",
                "topics": "lines",
                "source.cluster.alias": "src",
                "target.cluster.alias": "dst",
                "source.cluster.bootstrap.servers": lab.bootstrap_servers,
                "target.cluster.bootstrap.servers": lab.bootstrap_servers,
                "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
                "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
                "consumer.isolation.level": "read_committed",
                "source.consumer.isolation.level": "read_committed",
                "replication.factor": "1",
                "offset-syncs.topic.replication.factor": "1",
                "sync.topic.acls.enabled": "false",
            },
        )


def _restart(observer: Observer, workers: list[str | None], baseline: Baseline, delay_ms: int) -> float:
    """Restart workers one after the other, each when the group is stable again; None is the leader of that moment."""
    started = time.monotonic()
    deadline = started + delay_ms / 1000 + 120
    for position, worker_id in enumerate(workers):
        if position:
            _wait_until_joined(observer, deadline)
        chosen = worker_id or observer.observe().leader_id
        assert chosen is not None
        observer.hosts[chosen].restart()
    whole_at, _ = wait_until_whole(observer, baseline, deadline, hold_seconds=8)
    return whole_at - started


def _wait_until_joined(observer: Observer, deadline: float) -> None:
    while time.monotonic() < deadline:
        observation = observer.observe()
        if observation.leader_id and len(observation.members) == len(observation.workers):
            return
        time.sleep(0.5)
    raise AssertionError("the restarted worker did not join")


def wait_until_whole(
    observer: Observer, baseline: Baseline, deadline: float, hold_seconds: float = 5.0
) -> tuple[float, Baseline]:
    """Until every condition of the gate has held for a while; when that while began, and the states then."""
    since: float | None = None
    checks = ()
    while time.monotonic() < deadline:
        observation = observer.observe()
        checks = evaluate(_expectation(observation, baseline), observation)
        if not all(check.passed for check in checks) or len(_tasks(observation)) < 4:
            since = None
        elif since is None:
            since = time.monotonic()
        elif time.monotonic() - since >= hold_seconds:
            return since, Baseline.of(observation)
        time.sleep(0.5)
    raise AssertionError("the group did not become whole: " + "; ".join(str(c) for c in checks if not c.passed))


def _expectation(observation: Observation, baseline: Baseline) -> Expectation:
    return Expectation(
        members=frozenset(worker.worker_id for worker in observation.workers), baseline=baseline, modes={}
    )


def _tasks(observation: Observation) -> list[str]:
    return [task.state for status in (observation.statuses or {}).values() for task in status.tasks]
