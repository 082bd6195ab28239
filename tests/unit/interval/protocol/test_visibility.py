"""Who holds back a topic's readers, in words."""

from __future__ import annotations

from airflow_eos_provider.interval.protocol.visibility import holders
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import ActiveProducer, TransactionDescription, TransactionListing

ENDS = {0: 100, 1: 50}
MOMENT = 1_700_000_000_000


def producer(partition: int, producer_id: int, start: int | None) -> ActiveProducer:
    return ActiveProducer(partition, producer_id, 0, 0, MOMENT, start)


def described(started_at_ms: int | None) -> dict[str, TransactionDescription]:
    state = TransactionState.COMPLETE_ABORT if started_at_ms is None else TransactionState.ONGOING
    return {"other": TransactionDescription("other", state, 7, 0, 60_000, started_at_ms, (("t", 0),))}


LISTED = [
    TransactionListing("other", TransactionState.ONGOING, 7),
    TransactionListing("ours-0", TransactionState.COMPLETE_COMMIT, 8),
]


def test_only_what_is_open_before_the_end_holds_readers_back_each_producer_once() -> None:
    producers = [producer(0, 7, 10), producer(1, 7, 12), producer(0, 8, None), producer(0, 9, 100), producer(2, 9, 0)]

    (found,) = holders("t", producers, ENDS, LISTED, described(MOMENT))

    assert found.startswith("other (producer 7) blocks partition 0 from offset 10 on")


def test_a_holder_is_named_with_since_when_and_until_when() -> None:
    (found,) = holders("t", [producer(0, 7, 10)], ENDS, LISTED, described(MOMENT))

    assert "other (producer 7) blocks partition 0 from offset 10 on" in found
    assert "since 2023-11-14T22:13:20Z, until 2023-11-14T22:14:20Z at the latest" in found


def test_a_transaction_that_its_coordinator_does_not_know_hangs_and_can_be_aborted() -> None:
    (found,) = holders("t", [producer(0, 7, 10)], ENDS, LISTED, described(None))

    assert "eos transactions abort --topic t --partition 0 --start-offset 10" in found


def test_a_producer_whose_id_may_not_be_seen_is_named_by_its_number() -> None:
    (found,) = holders("t", [producer(1, 9, 10)], ENDS, LISTED, {})

    assert "producer 9 blocks partition 1 from offset 10 on since 2023-11-14T22:13:20Z" in found
    assert "no transactional id is listed" in found
