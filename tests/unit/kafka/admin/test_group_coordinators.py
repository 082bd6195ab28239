"""A coordinator that moves or loads is asked again; what cannot be provoked in time is a question in that moment."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from airflow_eos_provider.connect.group import listed_groups
from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.kafka.admin.consumer_groups import committed_offsets, consumer_groups, described_groups
from airflow_eos_provider.kafka.clients import QuietAdmin
from airflow_eos_provider.kafka.session import Session
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

SETTINGS = KafkaSettings.of("127.0.0.1:1")

LOADS = KafkaError.COORDINATOR_LOAD_IN_PROGRESS
REFUSED = KafkaError.GROUP_AUTHORIZATION_FAILED
MOVING = [LOADS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR]


def a_group(name: str) -> Any:
    return SimpleNamespace(
        id=name, group_id=name, state="Stable", protocol="sessioned", protocol_type="connect", members=[], error=None
    )


class Coordinators:
    """An admin client whose brokers answer with these errors, question by question, and then with what there is."""

    def __init__(self, errors: Mapping[str, list[int]]) -> None:
        self.errors = {name: list(codes) for name, codes in errors.items()}
        self.asked: list[str] = []

    def _next_error(self, name: str) -> KafkaException | None:
        self.asked.append(name)
        left = self.errors.get(name)
        return KafkaException(KafkaError(left.pop(0))) if left else None

    def _future(self, name: str, answer: Any) -> Future[Any]:
        future: Future[Any] = Future()
        error = self._next_error(name)
        if error is None:
            future.set_result(answer)
        else:
            future.set_exception(error)
        return future

    def poll(self, seconds: float) -> None:
        """Serve callbacks; there are none."""

    def list_groups(self, *names: str, timeout: float) -> list[Any]:
        if error := self._next_error("listing"):
            raise error
        return [a_group("a"), a_group("b")]

    def list_consumer_groups(self, request_timeout: float) -> Future[Any]:
        error = self._next_error("listing")
        found: Future[Any] = Future()
        # As librdkafka has it: what one broker refuses stands beside what the others have listed.
        found.set_result(SimpleNamespace(valid=[] if error else [a_group("a")], errors=[error] if error else []))
        return found

    def describe_cluster(self, **_: Any) -> Future[Any]:
        return self._future("cluster", SimpleNamespace(authorized_operations=[]))

    def describe_consumer_groups(self, names: list[str], request_timeout: float) -> dict[str, Future[Any]]:
        return {name: self._future(name if name in "ab" else "nobody", f"members of {name}") for name in names}

    def list_consumer_group_offsets(self, requests: list[Any], request_timeout: float) -> dict[str, Future[Any]]:
        (request,) = requests
        return {request.group_id: self._future(request.group_id, f"offsets of {request.group_id}")}


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[QuietAdmin, Coordinators]]:
    """An admin whose brokers answer as told, in every session; time passes with each pause, and nobody waits."""

    def answering(**errors: list[int]) -> tuple[QuietAdmin, Coordinators]:
        admin, brokers, now = QuietAdmin(SETTINGS), Coordinators(errors), [0.0]

        def pause(seconds: float) -> None:
            now[0] += seconds

        monkeypatch.setattr("airflow_eos_provider.kafka.admin.group_coordinators.time.monotonic", lambda: now[0])
        monkeypatch.setattr(brokers, "poll", pause)
        monkeypatch.setattr(admin, "client", brokers)
        monkeypatch.setattr(Session, "admin", lambda self: contextlib.nullcontext(admin))
        return admin, brokers

    return answering


@pytest.mark.parametrize("code", MOVING)
def test_groups_are_listed_once_every_broker_has_loaded_its_own(answering: Any, code: int) -> None:
    _, brokers = answering(listing=[code, code])
    assert [group.group_id for group in listed_groups(SETTINGS)] == ["a", "b"]
    assert brokers.asked == ["listing"] * 3


def test_a_broker_that_does_not_come_to_an_end_of_loading_is_named_as_that(answering: Any) -> None:
    _, brokers = answering(listing=[LOADS] * 1_000)
    with pytest.raises(UnreachableError, match=r"does not list its groups.*[Cc]oordinator load in progress"):
        listed_groups(SETTINGS, timeout_seconds=3.0)
    assert 5 < len(brokers.asked) < 50


def test_what_is_refused_is_not_asked_for_again(answering: Any) -> None:
    _, brokers = answering(listing=[REFUSED])
    with pytest.raises(ConfigurationError):
        listed_groups(SETTINGS)
    assert brokers.asked == ["listing"]


def test_consumer_groups_are_listed_again_and_then_nothing_is_unknown(answering: Any) -> None:
    admin, _ = answering(listing=[LOADS], nobody=[LOADS, KafkaError.GROUP_ID_NOT_FOUND])
    assert consumer_groups(admin) == (["a"], [])


def test_a_broker_that_goes_on_loading_leaves_groups_unknown(answering: Any) -> None:
    admin, _ = answering(listing=[LOADS] * 1_000)
    names, unknown = consumer_groups(admin)
    assert not names
    assert "groups of a broker" in unknown[0]


def test_what_may_be_hidden_is_an_error_if_nobody_tells(answering: Any) -> None:
    admin, _ = answering(nobody=[LOADS] * 1_000)
    with pytest.raises(EosError, match=r"[Cc]oordinator load in progress"):
        consumer_groups(admin)


@pytest.mark.parametrize(("look", "of"), [(described_groups, "members"), (committed_offsets, "offsets")])
def test_only_the_groups_whose_coordinator_moves_are_asked_for_again(answering: Any, look: Any, of: str) -> None:
    admin, brokers = answering(b=MOVING)
    assert look(admin, ["a", "b"]) == {"a": f"{of} of a", "b": f"{of} of b"}
    assert brokers.asked == ["a", "b", "b", "b", "b"]


@pytest.mark.parametrize("look", [described_groups, committed_offsets])
def test_each_group_has_its_own_error(answering: Any, look: Any) -> None:
    admin, _ = answering(a=[REFUSED], b=[LOADS] * 1_000)
    codes = [answer.args[0].code() for answer in look(admin, ["a", "b"]).values()]
    assert codes == [REFUSED, LOADS]


@pytest.mark.parametrize("look", [described_groups, committed_offsets])
def test_no_group_is_no_question(answering: Any, look: Any) -> None:
    admin, brokers = answering()
    assert look(admin, []) == {}
    assert not brokers.asked
