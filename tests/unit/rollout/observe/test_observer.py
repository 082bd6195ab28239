"""How a look is taken: everything at once, nothing waited for beyond the look's own limit. No broker is needed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.rest import ConnectorStatus
from airflow_eos_provider.connect.topics.config_topic import ClusterState, ConnectorConfigState, config_follower
from airflow_eos_provider.errors import ReadTimeoutError, UnreachableError
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.rollout.hosts.host import HostFacts
from airflow_eos_provider.rollout.hosts.serviced import ServicedHost
from airflow_eos_provider.rollout.observe import observer as observer_module
from airflow_eos_provider.rollout.observe.observer import InternalTopics, Observer
from airflow_eos_provider.rollout.observe.topic_watch import AT_ONCE, LogWatch
from tests.http_server import served

WORKERS = 40

#: Longer than any wait here takes; a barrier that is not reached by then is broken, and the test fails.
GIVE_UP_SECONDS = 20.0


class Together:
    """Workers that answer ``GET /`` only once all of them have been asked.

    :ivar port: theirs, at as many addresses.
    """

    port = 0

    def __init__(self) -> None:
        self.all_asked = threading.Barrier(WORKERS, timeout=GIVE_UP_SECONDS)
        self.topics_asked = threading.Barrier(AT_ONCE, timeout=GIVE_UP_SECONDS)

    def answer(self, _: str, path: str) -> tuple[int, Any]:
        if path == "/":
            self.all_asked.wait()
            return 200, {"version": "4.3.1", "commit": "c", "kafka_cluster_id": "k"}
        if path.endswith("/topics"):
            self.topics_asked.wait()
            name = path.split("/")[2]
            return 200, {name: {"topics": [f"of-{name}"]}}
        if path == "/health":
            return 200, {"status": "healthy", "message": ""}
        return 200, {"a": {"status": {"type": "source", "connector": {"state": "RUNNING", "worker_id": "w"}}}}


@pytest.fixture
def together() -> Iterator[Together]:
    workers = Together()
    with served(workers.answer, "0.0.0.0") as workers.port:
        yield workers
        workers.all_asked.abort()
        workers.topics_asked.abort()


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and never answers, as a worker's does whose process is stopped."""
    with socket.create_server(("0.0.0.0", 0), backlog=WORKERS) as listener:
        yield listener.getsockname()[1]


@pytest.fixture(autouse=True)
def no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a cluster without a broker says, without the seconds that it takes to say so."""

    def unreachable(*_: object, **__: object) -> None:
        raise UnreachableError("no broker")

    for question in ("describe_group", "other_groups", "read_cluster_state"):
        monkeypatch.setattr(observer_module, question, unreachable)
    monkeypatch.setattr(Session, "transactions", unreachable)


@pytest.fixture(autouse=True)
def seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer_module, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(observer_module, "HOSTS_SECONDS", 0.5)
    monkeypatch.setattr(observer_module, "LAST_PART_SECONDS", 0.5)


def cluster_at(port: int, workers: int = WORKERS) -> ConnectCluster:
    """Workers at this port of as many addresses; on Linux all of 127/8 is this machine's."""
    described = [{"url": f"http://127.0.0.{number}:{port}"} for number in range(1, workers + 1)]
    return ConnectCluster.from_mapping({"bootstrap_servers": "127.0.0.1:1", "group_id": "g", "workers": described})


def remotely(cluster: ConnectCluster) -> Observer:
    return Observer(cluster, remote=InternalTopics("configs", "offsets"))


def test_all_workers_are_asked_at_once(together: Together, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer_module, "ANSWER_SECONDS", GIVE_UP_SECONDS)
    observation = remotely(cluster_at(together.port)).observe()
    assert [worker.rest_problem for worker in observation.workers] == [None] * WORKERS
    assert observation.statuses is not None
    assert set(observation.statuses) == {"a"}


def test_connectors_are_asked_together_what_they_write_and_a_worker_that_is_gone_is_passed_over(
    together: Together,
) -> None:
    """The worker answers only once :data:`AT_ONCE` requests have come, so one after another none would end."""
    cluster = cluster_at(together.port, workers=2)
    answers, gone = cluster.workers[0], cluster_at(1, workers=1).workers[0]
    names = [f"c{number}" for number in range(3 * AT_ONCE)]
    state = ClusterState({name: ConnectorConfigState(name, {}, 0, "STARTED") for name in names}, end_offset=1)
    statuses = {name: ConnectorStatus(name, "source", "RUNNING", "w") for name in names}
    with ConnectSession(cluster) as session:
        watch = LogWatch(session, timeout_seconds=GIVE_UP_SECONDS)
        for _ in range(2):  # the second time nothing is asked: the barrier would wait for others
            _, written = watch._topics(state, statuses, [gone, answers])
            assert written == {name: frozenset({f"of-{name}"}) for name in names}


def test_all_hosts_are_looked_at_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    all_looked_at = threading.Barrier(WORKERS, timeout=GIVE_UP_SECONDS)
    look = ServicedHost.observe

    def observe(host: ServicedHost) -> HostFacts:
        all_looked_at.wait()
        return look(host)

    monkeypatch.setattr(observer_module, "HOSTS_SECONDS", GIVE_UP_SECONDS)
    monkeypatch.setattr(ServicedHost, "observe", observe)
    nothing_listens = cluster_at(1)  # so the workers' own part takes no time
    problems = [worker.facts.problem or "" for worker in Observer(nothing_listens).observe().workers]
    assert ["it has no 'config'" in problem for problem in problems] == [True] * WORKERS


def test_a_worker_that_hangs_is_named_and_holds_nothing_else_up(silent: int) -> None:
    """As many that hang as there are, the look is over when the first would have been given up."""
    observation = remotely(cluster_at(silent)).observe()
    problems = {worker.rest_problem or "" for worker in observation.workers}
    assert len(problems) == WORKERS
    assert {problem.partition("did not answer")[2] for problem in problems} == {" GET / within 0.5 s."}
    assert observation.statuses_problem == "No worker answers, so connectors and tasks are unknown."


def test_hosts_that_hang_are_named_and_leave_time_for_what_is_read_after_them(
    silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    given: list[float] = []

    def observe(host: ServicedHost) -> HostFacts:
        released.wait(GIVE_UP_SECONDS)
        return host.unseen("nobody looks")

    def read(session: object, topic: str, timeout_seconds: float) -> None:
        given.append(timeout_seconds)
        raise UnreachableError("no broker")

    monkeypatch.setattr(ServicedHost, "observe", observe)
    monkeypatch.setattr(observer_module, "LOOK_SECONDS", 6.0)
    monkeypatch.setattr(observer_module, "internal_topics", lambda *_: InternalTopics("configs", "offsets"))
    monkeypatch.setattr(observer_module, "read_cluster_state", read)
    try:
        workers = Observer(cluster_at(silent)).observe().workers
    finally:
        released.set()
    assert {worker.facts.problem for worker in workers} == {"its host could not be checked within 0.5 s"}
    assert {worker.mode.verdict.mode for worker in workers} == {None}
    (seconds,) = given
    assert seconds > 0.0


def test_an_earlier_look_at_a_host_that_goes_on_is_waited_for(silent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    released, looks = threading.Event(), []

    def observe(host: ServicedHost) -> HostFacts:
        looks.append(host)
        released.wait(GIVE_UP_SECONDS)
        return host.unseen("seen")

    monkeypatch.setattr(ServicedHost, "observe", observe)
    monkeypatch.setattr(observer_module, "LOOK_SECONDS", 3.0)
    observer = Observer(cluster_at(silent, workers=1))
    try:
        for _ in range(2):
            (worker,) = observer.observe().workers
            assert worker.facts.problem in (
                "its host could not be checked within 0.5 s",
                "an earlier check of its host has not ended within 0.5 s",
            )
        assert len(looks) == 1  # the busy machine was not asked a second time beside
    finally:
        released.set()
    monkeypatch.setattr(observer_module, "HOSTS_SECONDS", GIVE_UP_SECONDS)
    (worker,) = observer.observe().workers
    assert (worker.facts.problem, len(looks)) == ("seen", 2)


def test_a_part_that_does_not_come_is_given_up_at_the_looks_own_limit(
    silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    def describe(*_: object) -> None:
        released.wait(GIVE_UP_SECONDS)

    monkeypatch.setattr(observer_module, "LOOK_SECONDS", 1.5)
    monkeypatch.setattr(observer_module, "describe_group", describe)
    try:
        observation = remotely(cluster_at(silent, workers=1)).observe()
    finally:
        released.set()
    assert observation.group_problem == "the group could not be read within 1.5 s"


def test_a_look_is_as_old_as_its_first_part(silent: int) -> None:
    observation = remotely(cluster_at(silent, workers=1)).observe()
    assert observation.took_seconds >= 0.5  # so long the worker was waited for
    assert observation.begun_at == observation.at - observation.took_seconds


def test_a_config_topic_that_takes_several_looks_is_read_to_its_end(
    silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ClusterState({}, end_offset=3)

    def read_on(session: Session, topic: str, timeout_seconds: float) -> ClusterState:
        follower = session.follower(config_follower, topic)
        follower._position += 1
        if follower.position < whole.end_offset:
            raise ReadTimeoutError("records were still coming")
        return whole

    monkeypatch.setattr(observer_module, "read_cluster_state", read_on)
    assert remotely(cluster_at(silent, workers=1)).observe_settled(seconds=0.0).config is whole


def test_a_slow_look_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A far or busy machine is slow while its programs are looked for, which is done once."""
    slow = SimpleNamespace(config=object(), took_seconds=60.0)
    quick = SimpleNamespace(config=object(), took_seconds=1.0)
    looks = [slow, slow, quick]
    monkeypatch.setattr(observer_module, "unsettled", lambda look: look is slow)
    monkeypatch.setattr(observer_module, "_PAUSE_SECONDS", 0.0)
    observer = remotely(cluster_at(1, workers=1))
    monkeypatch.setattr(observer, "observe", lambda: looks.pop(0))
    assert observer.observe_settled(seconds=60.0) is quick
    looks[:] = [slow, slow, quick]
    assert observer.observe_settled(seconds=0.0) is quick
    looks[:] = [slow, slow, slow, quick]
    assert observer.observe_settled(seconds=0.0) is slow  # what stays so is a finding
    assert looks == [quick]
