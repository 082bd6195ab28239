from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from airflow_eos_provider.connect.topics.jackson import hash_map_order
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.messages import Completed, RunSummary, decoded, encoded
from airflow_eos_provider.interval.topics.control_topic import Outgoing
from airflow_eos_provider.interval.topics.ledger import (
    Claim,
    CompleteRecord,
    LedgerState,
    SliceMeasures,
    SliceRecord,
    add_digests,
    claim_record,
    complete_key,
    complete_record,
    require_comparable,
    slice_key,
    slice_record,
)
from airflow_eos_provider.interval.topics.pins import TopicPin
from airflow_eos_provider.kafka.read.reader import LogRecord
from airflow_eos_provider.stored import from_json, to_json

NAME = "2013-01-01T05:00:00Z/2013-01-02T05:00:00Z"
RUN = Run.parse(f"flights.daily@{NAME}")
DONE = SliceRecord("plan", 7, f"{5:032x}")
COMPLETE = CompleteRecord(RUN, 7, f"{5:032x}", 1)


def replayed(*records: Outgoing, pipeline: str = "flights.daily") -> LedgerState:
    state = LedgerState(pipeline)
    state.apply(LogRecord("l", 0, offset, 0, key, value) for offset, (key, value) in enumerate(records))
    return state


def test_keys_are_those_that_connect_would_write() -> None:
    assert slice_key(RUN, 0) == f'["flights.daily",{{"slice":0,"interval":"{NAME}"}}]'.encode()
    assert complete_key(RUN) == f'["flights.daily",{{"interval":"{NAME}"}}]'.encode()


def claim(group: str = "g", control: str = "c", control_id: str = "1", replaces: str = "") -> Claim:
    return Claim(group, TopicPin(control, control_id), replaces)


@pytest.mark.parametrize(
    ("claims", "counts"),
    [
        ([], None),
        ([claim(), claim("h"), claim(control="d")], claim()),
        ([claim(), claim("h"), claim(control_id="2", replaces="1")], claim(control_id="2", replaces="1")),
        (
            [claim(), claim(control_id="2", replaces="1"), claim(control_id="3", replaces="1")],
            claim(control_id="2", replaces="1"),
        ),
        ([claim(), claim("h", control_id="2", replaces="1")], claim()),
        ([claim(), claim(control_id="2", replaces="1"), claim(replaces="2")], claim(control_id="2", replaces="1")),
    ],
    ids=["none", "first", "replaced", "replaced once", "another group replaces nothing", "none comes back"],
)
def test_the_first_claim_counts_until_its_control_topic_is_replaced(claims: list[Claim], counts: Claim | None) -> None:
    assert replayed(*(claim_record("flights.daily", each) for each in claims)).claim == counts
    assert replayed(*(claim_record("other", each) for each in claims)).claim is None


def test_a_slice_is_done_until_it_is_removed() -> None:
    record = slice_record(RUN, 3, DONE)

    assert replayed(record).done(RUN, range(5)) == {3: DONE}
    assert replayed(record, Outgoing(record.key, None)).done(RUN, range(5)) == {}
    assert replayed(record).completed(RUN) is None


def test_a_run_is_complete_with_its_count_and_digest() -> None:
    state = replayed(complete_record(COMPLETE))

    assert state.completed(RUN) == COMPLETE
    assert list(state.complete_runs()) == [COMPLETE]


def test_a_slice_names_the_topics_that_its_rows_named() -> None:
    named = SliceRecord("plan", 7, f"{5:032x}", ("a", "b.c"))

    assert replayed(slice_record(RUN, 3, named)).done(RUN, [3]) == {3: named}


def test_how_a_slice_was_written_is_on_record_in_connects_own_spelling() -> None:
    """In the order of Java's HashMap, which Connect writes its offsets from; older readers pass over what is new."""
    seconds = {"read": 0.5, "produce": 1.25, "flush": 0.1}
    record = slice_record(RUN, 3, replace(DONE, measures=SliceMeasures(99, task=2, attempt=1, seconds=seconds)))

    assert record.value is not None
    value = json.loads(record.value)
    assert list(value) == list(hash_map_order(value))
    assert (value["bytes"], value["task"], value["attempt"], value["produce_ms"]) == (99, 2, 1, 1250)
    assert {type(member) for member in value.values()} <= {int, str, bool}, "Connect's offsets hold no others"
    found = replayed(record).done(RUN, [3])[3]
    assert found == DONE
    assert found.measures == SliceMeasures(99, 2, 1, seconds)


def test_a_run_is_complete_with_what_it_moved() -> None:
    seconds = {"produce": 1.5, "fence": 0.25}
    summary = RunSummary(4, 400, (1, 2, 3), (50, 100, 150), attempts_fenced=1, seconds=seconds)
    record = complete_record(replace(COMPLETE, summary=encoded(summary)))

    assert record.value is not None
    value = json.loads(record.value)
    assert list(value) == list(hash_map_order(value))
    found = replayed(record).completed(RUN)
    assert found == COMPLETE, "what a run moved is no part of what it promises"
    assert found is not None
    completed = Completed.of(found)
    assert completed.summary == summary
    assert from_json(Completed, json.loads(json.dumps(to_json(completed)))) == completed


@pytest.mark.parametrize("text", ["", "{", "[]", "1", '{"bytes":1}', '{"transactions":1,"bytes":1,"seconds":[]}', 7])
def test_a_summary_of_another_version_is_none(text: object) -> None:
    assert decoded(text) is None


def test_other_pipelines_and_foreign_records_in_the_topic_are_left_alone() -> None:
    foreign = [Outgoing(b'["flights",null]', b"{}"), Outgoing(b"", b"{}"), Outgoing(b"session-key", b"x")]

    assert list(replayed(complete_record(COMPLETE), *foreign, pipeline="flights").complete_runs()) == []


def test_what_is_removed_is_in_no_list() -> None:
    removed = replayed(complete_record(COMPLETE), Outgoing(complete_key(RUN), None), pipeline=RUN.pipeline)

    assert removed.completed(RUN) is None
    assert list(removed.complete_runs()) == []
    assert removed.overlapping(RUN.interval) == []


def test_what_is_not_of_this_package_is_not_taken_for_complete() -> None:
    with pytest.raises(EosError, match="not one of a complete interval"):
        replayed(Outgoing(complete_key(RUN), b'{"position":1}')).completed(RUN)


def test_overlap_is_found_by_text_as_by_time() -> None:
    moments = [f"2013-01-0{day}T0{hour}:00:00Z" for day in (1, 2, 3) for hour in (0, 5)]
    intervals = [Interval.parse(f"{a}/{b}") for a, b in itertools.combinations(moments, 2)]
    for one, other in itertools.product(intervals, intervals):
        state = replayed(complete_record(CompleteRecord(Run("p", one), 0, "0", 0)), pipeline="p")
        assert bool(state.overlapping(other)) == one.overlaps(other), (one.name, other.name)


def test_revisions_of_an_interval_overlap_it() -> None:
    second = Run(RUN.pipeline, RUN.interval, 2)
    state = replayed(complete_record(COMPLETE), complete_record(CompleteRecord(second, 1, "1", 1)))

    assert sorted(run.revision for run in state.overlapping(RUN.interval)) == [1, 2]


def test_digests_add_up_whatever_the_order_and_wrap_around() -> None:
    largest = "f" * 32

    assert add_digests([largest, f"{1:032x}"]) == "0" * 32
    assert add_digests(["1", "2", "3"]) == add_digests(["3", "1", "2"]) == f"{6:032x}"
    assert add_digests([]) == "0" * 32


def test_digests_of_another_version_are_never_compared() -> None:
    """Its records say nothing of a kind."""
    record = slice_record(RUN, 3, DONE)
    older = {name: value for name, value in json.loads(record.value or b"").items() if name != "digest_kind"}
    done = replayed(Outgoing(record.key, json.dumps(older).encode())).done(RUN, [3])

    with pytest.raises(EosError, match=r"Slice 3 of .* committed by another version .* a digest of kind 1"):
        require_comparable(RUN, done)
    require_comparable(RUN, replayed(record).done(RUN, [3]))

    complete = complete_record(COMPLETE)
    older = {name: value for name, value in json.loads(complete.value or b"").items() if name != "digest_kind"}
    found = replayed(Outgoing(complete.key, json.dumps(older).encode())).completed(RUN)
    assert found == replace(COMPLETE, digest_kind=1)


def hour(day: int, first: int, last: int = 0) -> Interval:
    end = last or first + 1
    return Interval.parse(f"2013-01-{day:02d}T{first:02d}:00:00Z/2013-01-{day:02d}T{end:02d}:00:00Z")


def complete(interval: Interval, revision: int = 1, *, ended: bool = True) -> CompleteRecord:
    return CompleteRecord(Run(RUN.pipeline, interval, revision), 7, f"{5:032x}", 1, ended=ended)


def test_an_interval_within_a_complete_one_that_had_ended_is_a_part_of_it() -> None:
    wide, other = complete(hour(1, 6, 12)), complete(hour(1, 12, 13))
    state = replayed(complete_record(other), complete_record(wide))

    for part in (hour(1, 6), hour(1, 8), hour(1, 11), hour(1, 7, 10)):
        assert state.whole_of(Run(RUN.pipeline, part)) == wide
        assert state.whole_of(Run(RUN.pipeline, part, 2)) is None, "a second revision is a run of its own"
    assert state.wholes([hour(1, number) for number in range(4, 14)]) == {hour(1, n): wide for n in range(6, 12)}
    assert state.wholes([]) == {}


@pytest.mark.parametrize("interval", [hour(1, 6, 12), hour(1, 5), hour(1, 5, 7), hour(1, 11, 13), hour(1, 5, 13)])
def test_what_is_not_within_is_no_part(interval: Interval) -> None:
    assert replayed(complete_record(complete(hour(1, 6, 12)))).whole_of(Run(RUN.pipeline, interval)) is None


def test_nothing_is_a_part_of_what_had_not_ended_or_was_removed() -> None:
    part = Run(RUN.pipeline, hour(1, 8))
    wide = complete_record(complete(hour(1, 6, 12)))

    assert replayed(complete_record(complete(hour(1, 6, 12), ended=False))).whole_of(part) is None
    assert replayed(wide, Outgoing(wide.key, None)).whole_of(part) is None
    assert replayed(complete_record(complete(hour(1, 6, 12), revision=2))).whole_of(part) is None
