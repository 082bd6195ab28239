"""Which transactions hang, decided from what partitions and coordinators say; and what an abort of one is."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.changes.change import Plan
from airflow_eos_provider.changes.transactions.abort import Found
from airflow_eos_provider.changes.transactions.change import AbortRequest, abort_plan
from airflow_eos_provider.connect.transactional_ids import KnownGroup
from airflow_eos_provider.kafka.admin.coordinators import java_hash, one_id_for_each, partition_of
from airflow_eos_provider.kafka.admin.open_transactions import HeldLook, HeldOpen
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription, TransactionListing
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.transactions.hanging import Hanging, HangingLook, decide, find_hanging
from airflow_eos_provider.transactions.known_ids import owner_of
from airflow_eos_provider.transactions.readable_ends import PartitionEnds

HELD = HeldOpen("orders", 3, 7, 1, 0, 100, 5)
LISTED = {7: TransactionListing("g-c-0", TransactionState.EMPTY, 7)}


def looked(*held: HeldOpen, **unknown: str) -> HeldLook:
    return HeldLook(held, {(topic, 0): why for topic, why in unknown.items()})


def described(
    *places: tuple[str, int], state: TransactionState = TransactionState.ONGOING, epoch: int = 1
) -> TransactionDescription:
    return TransactionDescription("g-c-0", state, 7, epoch, 60_000, 1, places)


def decided(*descriptions: TransactionDescription, second: HeldLook | None = None, **options: Any) -> HangingLook:
    second = looked(HELD) if second is None else second
    return decide(
        looked(HELD), second, options.get("listed", LISTED), descriptions, is_whole=options.get("whole", True)
    )


def test_what_its_coordinator_has_open_there_is_alive() -> None:
    assert decided(described(("orders", 3))) == HangingLook((), (), {})


@pytest.mark.parametrize("state", [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT])
def test_one_whose_marker_is_on_its_way_is_alive(state: TransactionState) -> None:
    assert not decided(described(("orders", 3), state=state)).hanging


def test_one_that_its_coordinator_has_open_elsewhere_hangs_here_and_its_producer_is_at_work() -> None:
    (found,) = decided(described(("orders", 4))).hanging
    assert (found.held, found.transactional_id, found.is_open_elsewhere) == (HELD, "g-c-0", True)


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_producer_of_the_same_epoch_may_write_into_it_one_that_was_fenced_may_not(epoch: int) -> None:
    (found,) = decided(described(state=TransactionState.COMPLETE_COMMIT, epoch=epoch)).hanging
    assert found.may_be_written is (epoch == HELD.producer_epoch)
    assert not found.is_open_elsewhere


def test_one_that_nobody_knows_hangs_only_if_all_coordinators_were_asked() -> None:
    (forgotten,) = decided(listed={}).hanging
    assert (forgotten.transactional_id, forgotten.may_be_written) == (None, False)
    assert decided(listed={}, whole=False) == HangingLook((), (HELD,), {})
    assert decided() == HangingLook((), (HELD,), {}), "it was listed, and forgotten before it was described"


def test_only_what_two_looks_have_seen_counts() -> None:
    assert not decided(listed={}, second=looked()).hanging
    assert not decided(listed={}, second=looked(HELD._replace(start_offset=200))).hanging
    found = decided(second=looked(other="it has no leader"))
    assert (found.unknown, found.is_whole) == ({("other", 0): "it has no leader"}, False)


class Client:
    """Answers in stock, and in which order they were asked for."""

    def __init__(self, whole: tuple[TransactionListing, ...] | None, *opened: TransactionDescription) -> None:
        self.whole, self.opened = whole, opened
        self.asked: list[str] = []

    def held_open(self, places: Any) -> HeldLook:
        self.asked.append(f"partitions {sorted(places)}")
        return looked(HELD)

    def whole_list(self, coordinators: int) -> tuple[TransactionListing, ...] | None:
        self.asked.append(f"{coordinators} coordinators")
        return self.whole

    def list(self, *, open_only: bool = False) -> tuple[TransactionListing, ...]:
        self.asked.append("list of the open" if open_only else "list")
        return tuple(LISTED.values()) if self.opened and open_only else ()

    def describe(self, ids: Any) -> dict[str, TransactionDescription]:
        self.asked.append(f"describe {sorted(ids)}")
        return {one.transactional_id: one for one in self.opened}


def test_the_partitions_are_asked_before_the_coordinators_and_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = [("orders", 2), ("orders", 3)]
    client = Client(())
    monkeypatch.setattr(Session, "transactions", lambda session: nullcontext(client))
    assert len(find_hanging(KafkaSettings.of("b:1"), everything, 50).hanging) == 1
    assert client.asked == [
        f"partitions {everything}",
        *("list of the open", "describe []"),
        *("50 coordinators", "describe []"),
        "partitions [('orders', 3)]",
    ]


def test_where_a_coordinator_has_it_open_the_whole_list_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(None, described(("orders", 3)))
    monkeypatch.setattr(Session, "transactions", lambda session: nullcontext(client))
    assert find_hanging(KafkaSettings.of("b:1"), [("orders", 3)], 50) == HangingLook((), (), {})
    assert client.asked == ["partitions [('orders', 3)]", "list of the open", "describe ['g-c-0']"]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Hanging(HELD, "g-c-0", TransactionState.EMPTY, epoch=2), "'{} --start-offset 100' ends it"),
        (Hanging(HELD, "g-c-0", TransactionState.EMPTY, epoch=1), "'{} --start-offset 100 --fence' ends it"),
        (
            Hanging(HELD, "g-c-0", TransactionState.ONGOING, epoch=2),
            "stop the producer of g-c-0, which is at work; then '{} --start-offset 100' ends it",
        ),
    ],
)
def test_the_command_that_ends_it_is_one_that_is_not_refused(found: Hanging, words: str) -> None:
    assert found.how_to_end == words.format("eos transactions abort --topic orders --partition 3")


@pytest.mark.parametrize(("coordinators", "whole"), [(0, ()), (50, None)])
def test_without_an_answer_of_every_coordinator_nothing_is_called_hanging(
    monkeypatch: pytest.MonkeyPatch, coordinators: int, whole: tuple[TransactionListing, ...] | None
) -> None:
    monkeypatch.setattr(Session, "transactions", lambda session: nullcontext(Client(whole)))
    found = find_hanging(KafkaSettings.of("b:1"), [("orders", 3)], coordinators)
    assert (found.hanging, found.unseen) == ((), (HELD,))


@pytest.mark.parametrize("opened", [(), (HELD,)])
def test_topics_that_may_be_hidden_are_not_known(monkeypatch: pytest.MonkeyPatch, opened: tuple[HeldOpen, ...]) -> None:
    client = Client(())
    monkeypatch.setattr(client, "held_open", lambda places: looked(*opened))
    monkeypatch.setattr(Session, "transactions", lambda session: nullcontext(client))
    places = [("orders", 3)]
    assert find_hanging(KafkaSettings.of("b:1"), places, 50).is_whole
    found = find_hanging(KafkaSettings.of("b:1"), places, 50, "topics that User:a may not see")
    assert (found.hidden, found.is_whole) == ("topics that User:a may not see", False)


def test_there_is_an_id_for_each_coordinator_and_they_have_no_beginning_in_common() -> None:
    ids = one_id_for_each(50)
    assert [partition_of(id_, 50) for id_ in ids] == list(range(50))
    assert len({id_[:1] for id_ in ids}) > 1
    assert one_id_for_each(50) != ids


@pytest.mark.parametrize(
    ("transactional_id", "hashed"),
    [
        ("hello", 99_162_322),
        ("connect-transactions-lines-0", -283_107_987),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_an_id_belongs_to_the_partition_of_the_absolute_value_of_its_hash(transactional_id: str, hashed: int) -> None:
    assert java_hash(transactional_id) == hashed & 0xFFFFFFFF
    wanted = 0 if hashed == -(2**31) else abs(hashed) % 50  # Kafka's Utils.abs
    assert partition_of(transactional_id, 50) == wanted


def found(held: HeldOpen = HELD, *, state: TransactionState | None = TransactionState.EMPTY) -> Found:
    return Found("kafka-1", Hanging(held, state and "g-c-0", state, 2), fences=False, ends=PartitionEnds(100, 150))


def plan(one: Found) -> Plan:
    return abort_plan("g", AbortRequest("orders", 3), one)


def test_the_hash_is_over_the_transaction_and_not_over_what_others_write_meanwhile() -> None:
    later = found(HELD._replace(last_timestamp_ms=9), state=TransactionState.COMPLETE_ABORT)
    assert plan(replace(later, ends=PartitionEnds(100, 999))).hash == plan(found()).hash
    others = (HELD._replace(start_offset=200), HELD._replace(producer_epoch=2), HELD._replace(coordinator_epoch=1))
    for other in (*map(found, others), replace(found(), fences=True), found(state=None)):
        assert plan(other).hash != plan(found()).hash
    assert "given up for good" in plan(found()).needs_hash


def test_the_plan_says_what_is_given_up() -> None:
    assert "g-c-0, which its coordinator calls Empty" in plan(found()).lines[1]
    assert "which no coordinator knows any more" in plan(found(state=None)).lines[1]
    assert "50 offsets are behind it" in plan(found()).lines[2]
    assert plan(found(state=TransactionState.COMPLETE_COMMIT)).lines[-1].endswith("its last transaction was committed")


@pytest.mark.parametrize(
    ("transactional_id", "text", "connector"),
    [
        ("connect-cluster-a", "the leader, for the config topic", None),
        ("a-orders-3", "orders, task 3", "orders"),
        ("a-b-c-0", "b-c, task 0", "b-c"),
        ("a-unknown-0", "not this group", None),
        ("a-orders-x", "not this group", None),
        ("a-orders-\u00b2", "not this group", None),
        ("ab-orders-0", "not this group", None),
        ("connect-cluster-a-b", "not this group", None),
    ],
)
def test_whose_an_id_is(transactional_id: str, text: str, connector: str | None) -> None:
    owner = owner_of(transactional_id, "a", {"orders", "b-c"})
    assert (owner.text, owner.connector) == (text, connector)


def test_where_the_connectors_are_not_known_the_name_decides() -> None:
    assert owner_of("a-b-c-0", "a", None).text == "perhaps b-c, task 0"


def test_what_another_group_claims_is_named_as_its() -> None:
    others = [KnownGroup("a-b", frozenset({"c"})), KnownGroup("x")]
    both = owner_of("a-b-c-0", "a", {"b-c"}, others)
    assert (both.text, both.group_id, both.connector) == ("b-c, task 0; or group a-b: c, task 0", "a", "b-c")
    theirs = owner_of("a-b-c-0", "a", {"orders"}, others)
    assert (theirs.text, theirs.group_id, theirs.connector) == ("group a-b: c, task 0", None, None)
    assert owner_of("connect-cluster-a-b", "a", None, others).text == "group a-b: the leader"
    assert owner_of("a-b-c-0", "a", {"orders"}, [KnownGroup("a-b")]).text == "group a-b: perhaps c, task 0"


def test_where_the_connectors_are_not_known_what_another_group_has_for_certain_is_its() -> None:
    theirs = owner_of("a-b-c-0", "a", None, [KnownGroup("a-b", frozenset({"c"}))])
    assert (theirs.text, theirs.group_id) == ("group a-b: c, task 0", None)
    both = owner_of("a-b-c-0", "a", None, [KnownGroup("a-b")])
    assert (both.text, both.group_id) == ("b-c, task 0; or group a-b: perhaps c, task 0", "a")
