"""When a part counts as ready, and how one that does not get ready is named."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from airflow_eos_provider.errors import EosError, UnreachableError
from airflow_eos_provider.lab.waiting import Starting, is_healthy, until, wait_until_ready
from airflow_eos_provider.local_processes import spawn
from tests.http_server import served


@contextmanager
def worker(answers: Mapping[str, int], after_each: Callable[[], None] = lambda: None) -> Iterator[str]:
    """A server with these statuses by path, 404 for all else as Jetty gives it while a worker starts; yields its URL.

    A real worker passes through these states in a second or two, too fast to be held in one.

    :param after_each: what happens while each request is answered.
    """

    def answer(_: str, path: str) -> tuple[int, None]:
        status = answers.get(path, 404)
        after_each()
        return status, None

    with served(answer) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("answers", "healthy"),
    [
        ({"/": 200, "/health": 200}, True),
        ({"/": 200, "/health": 503, "/connectors": 200}, False),
        ({"/": 200, "/connectors": 200}, True),
        ({"/": 200, "/connectors": 500}, False),
        ({}, False),
    ],
    ids=["healthy", "starting", "before-3.9", "before-3.9-starting", "nothing-is-there-yet"],
)
def test_a_worker_is_ready_when_its_herder_answers(answers: Mapping[str, int], healthy: bool) -> None:
    with worker(answers) as url:
        assert is_healthy(url) is healthy


def test_a_worker_whose_addresses_come_up_between_two_questions_is_not_taken_for_an_older_one() -> None:
    # From 4.0 on /connectors is answered at once: by an empty list before the config topic is read.
    answers: dict[str, int] = {}

    def come_up() -> None:
        answers.update({"/": 200, "/health": 503, "/connectors": 200})

    with worker(answers, after_each=come_up) as url:
        assert not is_healthy(url)
        assert not is_healthy(url)


def test_where_nobody_listens_nobody_is_ready() -> None:
    with worker({}) as url:
        pass
    assert not is_healthy(url)


def test_a_wait_returns_what_was_seen_and_a_look_that_nobody_answers_sees_nothing() -> None:
    looks = iter([UnreachableError("The worker does not answer."), "", "seen"])

    def look() -> str:
        found = next(looks)
        if isinstance(found, UnreachableError):
            raise found
        return found

    assert until(look, "something", 60.0, pause_seconds=0.0) == "seen"


def test_a_wait_in_vain_ends_with_what_was_waited_for_and_why_nobody_answered() -> None:
    def look() -> None:
        raise UnreachableError("The worker does not answer.")

    with pytest.raises(EosError, match=r"waiting for the end\. The worker does not answer\."):
        until(look, "the end", 0.0)


Begin = Callable[[str, str], Starting]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Start a process by its name and its program in Python, with a log of its own."""
    with ExitStack() as stack:

        def start(name: str, program: str) -> Starting:
            log = tmp_path / f"{name}.log"
            process = spawn([sys.executable, "-uc", program], log=log)
            stack.callback(process.stop, kill=True)
            until(log.read_text, "its first line: it runs", 60)
            return Starting(name, process, log)

        yield start


def test_one_that_never_gets_ready_is_named_with_the_end_of_its_own_log(begin: Begin) -> None:
    hangs = begin("triggerer", "print('waits for a lock'); import time; time.sleep(600)")
    works = begin("scheduler", "print('all is well'); import time; time.sleep(600)")
    with pytest.raises(UnreachableError, match=r"triggerer is not ready after .*") as failure:
        wait_until_ready([hangs, works], lambda: ["triggerer"], seconds=0.5)
    assert "waits for a lock" in str(failure.value)
    assert "all is well" not in str(failure.value)


def test_one_that_dies_is_named_at_once_though_another_one_is_awaited(begin: Begin) -> None:
    dies = begin("postgres", "print('no space left on device')")
    works = begin("scheduler", "print('waits for its database'); import time; time.sleep(600)")
    with pytest.raises(EosError, match="postgres ended while it started") as failure:
        wait_until_ready([works, dies], lambda: ["scheduler"])
    assert "no space left on device" in str(failure.value)
