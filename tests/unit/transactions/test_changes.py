"""What a watch prints: changes between two looks, each once."""

from __future__ import annotations

from airflow_eos_provider.kafka.admin.open_transactions import HeldOpen
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription
from airflow_eos_provider.transactions.differences import Moment, changes
from airflow_eos_provider.transactions.hanging import Hanging, HangingLook
from airflow_eos_provider.transactions.known_ids import KnownId, Owner

HELD = HeldOpen("orders", 3, 7, 1, 0, 100, 5)
NOTHING = HangingLook((), (), {})


def moment(at: float, *began: float, look: HangingLook | None = NOTHING, problem: str = "") -> Moment:
    opened = tuple(
        KnownId(
            TransactionDescription("g-c-0", TransactionState.ONGOING, 7, 1, 60_000, int(each * 1000), (("orders", 3),)),
            Owner("c, task 0", "g", "c"),
        )
        for each in began
    )
    return Moment(at, opened, look, problem)


def kinds(*moments: Moment) -> list[str]:
    """What is printed for looks one after the other, as the watch keeps the last one that saw something."""
    return [
        str(c.kind) for before, now in zip([None, *moments], moments, strict=False) for c in changes(before, now, 30)
    ]


def test_a_transaction_is_named_once_when_it_is_long_once_when_it_is_overdue_and_when_it_ends() -> None:
    looks = [moment(at, 1000) for at in (1010, 1031, 1036, 1080, 1085)]
    assert kinds(*looks, moment(1090)) == ["open long", "overdue", "ended"]


def test_one_that_ends_soon_is_not_named_and_the_next_of_the_same_id_is_another() -> None:
    assert kinds(moment(1010, 1000), moment(1015)) == []
    assert kinds(moment(1040, 1000), moment(1045, 1041)) == ["open long", "ended"]


def test_one_that_hangs_is_named_once_and_when_it_is_gone() -> None:
    hangs = moment(1000, look=HangingLook((Hanging(HELD, "late"),), (), {}))
    assert kinds(hangs, hangs, moment(1010)) == ["hanging", "ended"]
    assert "orders-3: a transaction of late hangs since offset 100" in changes(None, hangs, 30)[0].what


def test_what_is_not_seen_has_not_ended() -> None:
    hangs = moment(1000, look=HangingLook((Hanging(HELD),), (), {}))
    for unseen in (HangingLook((), (), {("orders", 3): "it has no leader"}), HangingLook((), (HELD,), {})):
        assert [str(c.kind) for c in changes(hangs, moment(1005, look=unseen), 30)] == ["not seen"]
    away = moment(1005, look=None, problem="no broker")
    assert [(str(c.kind), c.what) for c in changes(hangs, away, 30)] == [("not seen", "no broker")]


def test_that_something_is_not_seen_is_said_once_and_when_it_is_seen_again() -> None:
    unseen = moment(1000, look=HangingLook((), (), {("t", 0): "it has no leader"}))
    assert kinds(moment(990), unseen, unseen, moment(1010)) == ["not seen", "seen again"]
    hidden = moment(1000, look=HangingLook((), (), {}, "topics that User:a may not see"))
    assert [each.what for each in changes(None, hidden, 30)] == [
        "whether something hangs in topics that User:a may not see"
    ]
