"""A coordinator that moves or loads is asked again; what cannot be provoked in time is a question in that moment."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace as Answer
from typing import Any

import kafka.errors
import pytest

from airflow_eos_provider.connect.group import describe_group, listed_groups
from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.kafka.admin.client import Admin
from airflow_eos_provider.kafka.admin.groups import (
    committed_offsets,
    consumer_groups,
    describe_groups,
    groups_seen,
)
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from tests.unit.kafka.scripted_admin import ScriptedAdmin

SETTINGS = KafkaSettings.of("127.0.0.1:1")

LOADS = kafka.errors.CoordinatorLoadInProgressError.errno
REFUSED = kafka.errors.GroupAuthorizationFailedError.errno
NOT_FOUND = kafka.errors.GroupIdNotFoundError.errno
MOVING = [LOADS, kafka.errors.CoordinatorNotAvailableError.errno, kafka.errors.NotCoordinatorError.errno]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Admin, list[str]]]:
    """An admin whose brokers answer with these errors, question by question, and then with what there is."""

    def answering(**errors: list[int]) -> tuple[Admin, list[str]]:
        asked: list[str] = []

        def code(name: str) -> int:
            asked.append(name)
            return errors[name].pop(0) if errors.get(name) else 0

        def answer(kind: str, request: Any) -> Any:
            if kind == "Metadata":
                return Answer(brokers=[], cluster_id="c", authorized_operations=None)
            if kind == "ListGroups":
                listed = [Answer(group_id=name, protocol_type=kind) for name, kind in (("a", "connect"), ("b", ""))]
                error = code("listing")
                return Answer(error_code=error, groups=[] if error else listed)
            names = request.groups if kind == "DescribeGroups" else [group.group_id for group in request.groups]
            return Answer(groups=[described(name) for name in names])

        def described(name: str) -> Any:
            return Answer(
                group_id=name,
                error_code=code(name if name in ("a", "b") else "nobody"),
                group_state="Stable",
                protocol_data="",
                protocol_type="connect",
                members=[],
                topics=[],
            )

        admin = ScriptedAdmin(monkeypatch, answer)
        monkeypatch.setattr(Session, "admin", lambda self: contextlib.nullcontext(admin))
        return admin, asked

    return answering


@pytest.mark.parametrize("code", MOVING)
def test_groups_are_listed_once_every_broker_has_loaded_its_own(answering: Any, code: int) -> None:
    _, asked = answering(listing=[code, code])
    assert {group.group_id: group.protocol_type for group in listed_groups(SETTINGS)} == {"a": "connect", "b": ""}
    assert asked == [*["listing"] * 3, "a"]


def test_a_broker_that_does_not_come_to_an_end_of_loading_is_named_as_that(answering: Any) -> None:
    _, asked = answering(listing=[LOADS] * 1_000)
    with pytest.raises(UnreachableError, match=r"does not list its groups.*CoordinatorLoadInProgress"):
        listed_groups(SETTINGS, timeout_seconds=3.0)
    assert 5 < len(asked) < 50


def test_what_is_refused_is_not_asked_for_again(answering: Any) -> None:
    _, asked = answering(listing=[REFUSED])
    with pytest.raises(ConfigurationError):
        listed_groups(SETTINGS)
    assert asked == ["listing"]


def test_consumer_groups_are_listed_again_and_then_nothing_is_unknown(answering: Any) -> None:
    admin, _ = answering(listing=[LOADS], nobody=[LOADS, NOT_FOUND])
    assert consumer_groups(admin) == (["b"], [])


def test_the_members_of_a_group_that_is_listed_and_not_described_are_called_unknown(answering: Any) -> None:
    """A group of the newer protocol, which DescribeGroups does not know."""
    admin, _ = answering(nobody=[NOT_FOUND], b=[0, NOT_FOUND])
    (group,), (unknown,) = groups_seen(admin)
    assert group.group_id == "b"
    assert "group b: its members are not known" in unknown


def test_a_broker_that_goes_on_loading_leaves_groups_unknown(answering: Any) -> None:
    admin, _ = answering(listing=[LOADS] * 1_000)
    names, unknown = consumer_groups(admin)
    assert not names
    assert "groups of a broker" in unknown[0]


def test_what_may_be_hidden_is_an_error_if_nobody_tells(answering: Any) -> None:
    admin, _ = answering(nobody=[LOADS] * 1_000)
    with pytest.raises(EosError, match="CoordinatorLoadInProgress"):
        consumer_groups(admin)


@pytest.mark.parametrize("look", [describe_groups, committed_offsets])
def test_only_the_groups_whose_coordinator_moves_are_asked_for_again(answering: Any, look: Any) -> None:
    admin, asked = answering(b=[*MOVING])
    assert not [answer for answer in look(admin, ["a", "b"]).values() if isinstance(answer, Exception)]
    assert asked == ["a", "b", "b", "b", "b"]


@pytest.mark.parametrize("look", [describe_groups, committed_offsets])
def test_each_group_has_its_own_error(answering: Any, look: Any) -> None:
    admin, _ = answering(a=[REFUSED], b=[LOADS] * 1_000)
    assert [answer.errno for answer in look(admin, ["a", "b"]).values()] == [REFUSED, LOADS]


@pytest.mark.parametrize("look", [describe_groups, committed_offsets])
def test_no_group_is_no_question(answering: Any, look: Any) -> None:
    admin, asked = answering()
    assert look(admin, []) == {}
    assert not asked


class TestWorkers:
    def test_a_group_whose_coordinator_moves_is_asked_for_again(self, answering: Any) -> None:
        answering(a=[*MOVING])
        assert describe_group(SETTINGS, "a").group_id == "a"

    def test_one_that_its_coordinator_does_not_know_is_not_there(self, answering: Any) -> None:
        answering(nobody=[NOT_FOUND])
        with pytest.raises(ConfigurationError, match=r"There is no group g .* Connect groups there: a\."):
            describe_group(SETTINGS, "g")

    def test_one_whose_coordinator_stays_away_is_not_called_gone(self, answering: Any) -> None:
        answering(nobody=[LOADS] * 1_000)
        with pytest.raises(UnreachableError, match="describing group g"):
            describe_group(SETTINGS, "g", timeout_seconds=1.0)
