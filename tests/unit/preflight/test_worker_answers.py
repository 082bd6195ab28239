"""How workers are asked: side by side, no one kept waiting by another, and what does not come is not known."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.description import ConnectCluster, RestSettings, WorkerDescription
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectorStatus
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.preflight import worker_answers
from airflow_eos_provider.preflight.worker_answers import Answers, ask_workers
from tests.http_server import served

#: No test waits so long; seconds.
LIMIT = 60.0

ROOT = {"version": "4.0.0", "commit": "c", "kafka_cluster_id": "k"}


class Simulated:
    """A worker's REST API: what it was asked, how many questions at once, and what each waits for.

    A server of our own: a real worker does not hang when it is told to.

    :param greets: whether it says who it is.
    :param validates: carried out before it answers a validation.
    :param tracks: whether it says which topics a connector has written.
    :param words: its message about a property, by name.
    """

    def __init__(
        self,
        *,
        greets: Callable[[], object] = lambda: None,
        validates: Callable[[], object] = lambda: None,
        tracks: bool = True,
        words: dict[str, str] | None = None,
    ) -> None:
        self.greets, self.validates, self.tracks = greets, validates, tracks
        self.words = words or {}
        self.asked = Counter[str]()
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()

    def answer(self, method: str, path: str) -> tuple[int, Any]:
        kind = "root" if path == "/" else "topics" if path.endswith("/topics") else "validate"
        with self._lock:
            self.asked[kind] += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return self._answer(kind, path)
        finally:
            with self._lock:
                self.at_once -= 1

    def _answer(self, kind: str, path: str) -> tuple[int, Any]:
        if kind == "root":
            self.greets()
            return 200, ROOT
        if kind == "topics":
            name = path.split("/")[2]
            return (200, {name: {"topics": ["t"]}}) if self.tracks else (403, {"error_code": 403, "message": "off"})
        self.validates()
        values = [{"value": {"name": name, "errors": [text]}} for name, text in self.words.items()]
        return 200, {"name": "C", "error_count": len(values), "configs": values}


@contextmanager
def session_of(workers: Sequence[Simulated]) -> Iterator[ConnectSession]:
    """A session of a cluster of these workers."""
    with ExitStack() as stack:
        ports = [stack.enter_context(served(worker.answer)) for worker in workers]
        described = tuple(WorkerDescription(f"http://127.0.0.1:{port}") for port in ports)
        cluster = ConnectCluster(
            KafkaSettings({"bootstrap.servers": "127.0.0.1:1"}), "g", RestSettings(timeout_seconds=LIMIT), described
        )
        yield stack.enter_context(ConnectSession(cluster, answer_seconds=LIMIT))


def connectors(count: int, **config: str) -> list[ConnectorStatus]:
    given = {"connector.class": "C", **{name.replace("_", "."): value for name, value in config.items()}}
    return [ConnectorStatus(f"c{n:03}", "source", "RUNNING", "w", config=given) for n in range(count)]


def ask(
    workers: Sequence[Simulated], asked: Sequence[ConnectorStatus], seconds: float = LIMIT, **more: Any
) -> dict[str, Answers]:
    progress = more.pop("progress", lambda done, total: None)
    with session_of(workers) as session:
        return ask_workers(session, asked, Mode.ENABLED, time.monotonic() + seconds, progress)


def problems(answers: dict[str, Answers], worker: int) -> set[str]:
    return {of_workers[worker].problem for of_workers, _, _ in answers.values()}


def test_a_worker_that_is_slow_keeps_no_other_from_being_asked() -> None:
    count = 40
    all_of_the_other = threading.Event()
    quick = Simulated(validates=lambda: all_of_the_other.set() if quick.asked["validate"] == count else None)
    slow = Simulated(validates=lambda: all_of_the_other.wait(LIMIT))
    answers = ask([slow, quick], connectors(count))
    assert all_of_the_other.is_set()
    assert problems(answers, 0) == problems(answers, 1) == {""}
    assert max(slow.most_at_once, quick.most_at_once) <= 5  # four questions, and one about topics that is just over


def test_a_worker_that_does_not_say_who_it_is_is_not_asked_about_connectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_answers, "ANSWER_SECONDS", 5.0)
    over = threading.Event()
    suspended, other = Simulated(greets=lambda: over.wait(LIMIT)), Simulated()
    answers = ask([suspended, other], connectors(20))
    over.set()
    assert suspended.asked == {"root": 1}
    assert all(problems(answers, 0))
    assert problems(answers, 1) == {""}
    assert {(topics, why) for _, topics, why in answers.values()} == {(("t",), "")}  # the other one says it


def test_topics_are_those_of_the_first_worker_that_says_it_and_else_not_known() -> None:
    answers = ask([Simulated(tracks=False), Simulated()], connectors(4))
    assert {(topics, why) for _, topics, why in answers.values()} == {(("t",), "")}
    answers = ask([Simulated(tracks=False)], connectors(1))
    assert answers["c000"][1:] == ((), "the workers do not track topics (topic.tracking.enable)")


def test_what_is_not_answered_in_time_is_not_known_and_every_question_is_counted() -> None:
    told: list[tuple[int, int]] = []
    answers = ask([Simulated()], connectors(3), seconds=0, progress=lambda *counted: told.append(counted))
    assert all(problems(answers, 0))
    assert all(why for _, _, why in answers.values())
    assert told == [(number, 6) for number in range(1, 7)]


def test_what_is_left_when_a_look_is_broken_off_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Exception):
        """Stands for Ctrl-C, which comes where the main thread waits for a result."""

    reached, going_on = threading.Event(), threading.Event()

    def break_off(_: object) -> Iterator[Any]:
        assert reached.wait(LIMIT)
        raise Broken

    monkeypatch.setattr(worker_answers, "as_completed", break_off)
    worker = Simulated(validates=lambda: (reached.set(), going_on.wait(LIMIT)))
    with session_of([worker]) as session, pytest.raises(Broken):
        ask_workers(session, connectors(50), Mode.ENABLED, time.monotonic() + LIMIT, lambda done, total: None)
    going_on.set()
    assert worker.asked["validate"] <= 4


def test_words_about_a_value_that_a_config_provider_supplies_are_left_out() -> None:
    words = {"file": "Invalid value canary-91 for configuration file", "topic": "Missing topic"}
    answers = ask([Simulated(words=words)], connectors(1, file="${file:/secrets:name}", topic=""))
    ((answer,), _, _) = answers["c000"]
    assert "canary-91" not in str(answer)
    assert answer.errors["topic"] == ("Missing topic",)
    assert "config provider" in answer.errors["file"][0]
