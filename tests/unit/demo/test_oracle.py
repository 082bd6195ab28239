from __future__ import annotations

import pytest

from airflow_eos_provider.demo.oracle import Comparison, Drained, compare, expected_from_values
from airflow_eos_provider.kafka.read.reader import LogRecord

LINES = [b'{"line":%d,"year":2013}' % number for number in range(1, 101)]


def drained(values: list[bytes | None], first_ms: int = 1000, topic: str = "flights") -> Drained:
    result = Drained(topic)
    result.add([LogRecord(topic, n % 3, n, first_ms + n, None, value) for n, value in enumerate(values)])
    return result


def against_lines(values: list[bytes | None], since_ms: int | None = None) -> Comparison:
    return compare(expected_from_values(LINES, "the input"), drained(values), since_ms)


def test_the_same_lines_in_another_order_are_exactly_once() -> None:
    comparison = against_lines(list(reversed(LINES)))
    assert comparison.exactly_once
    assert (comparison.records, comparison.expected) == (100, 100)
    assert comparison.examples == ()


def test_one_missing_line_is_found_and_named() -> None:
    comparison = against_lines(LINES[:41] + LINES[42:])
    assert not comparison.exactly_once
    assert comparison.missing == 1
    assert comparison.examples == ('missing: {"line":42,"year":2013}',)


def test_one_missing_line_is_not_made_good_by_another_one_twice() -> None:
    comparison = against_lines([*LINES[:41], *LINES[42:], LINES[0]])
    assert comparison.records == comparison.expected
    assert (comparison.missing, comparison.duplicates) == (1, 1)


@pytest.mark.parametrize(("since_ms", "duplicates", "before"), [(1100, 1, 0), (1101, 0, 1), (None, 1, 0)])
def test_a_doubled_line_counts_from_the_moment_on_at_which_its_second_copy_came(
    since_ms: int | None, duplicates: int, before: int
) -> None:
    comparison = against_lines([*LINES, LINES[6]], since_ms)
    assert (comparison.duplicates, comparison.duplicates_before_enabled) == (duplicates, before)
    assert comparison.exactly_once is False  # also where nothing at all came since that moment, which proves nothing


def test_an_early_double_leaves_what_came_later_exactly_once() -> None:
    comparison = against_lines([LINES[0], *LINES], since_ms=1050)
    assert (comparison.duplicates, comparison.duplicates_before_enabled, comparison.records_since) == (0, 1, 51)
    assert comparison.exactly_once


def test_the_later_copy_is_the_duplicate_even_if_it_is_read_first() -> None:
    topic = Drained("flights")
    topic.add([LogRecord("flights", 0, 0, 9000, None, LINES[0])])
    topic.add([LogRecord("flights", 1, 0, 1000, None, LINES[0])])
    comparison = compare(expected_from_values(LINES[:1], "the input"), topic, 5000)
    assert (comparison.duplicates, comparison.duplicates_before_enabled) == (1, 0)


def test_an_altered_line_is_missing_and_unexpected() -> None:
    comparison = against_lines([*LINES[:-1], b'{"line":100,"year":2014}'])
    assert not comparison.exactly_once
    assert (comparison.missing, comparison.unexpected) == (1, 1)
    assert comparison.examples == (
        'missing: {"line":100,"year":2013}',
        'not in the input: {"line":100,"year":2014}',
    )


@pytest.mark.parametrize("unknown", [b"no flight", b"", None])
def test_a_record_that_was_never_put_in_is_found(unknown: bytes | None) -> None:
    comparison = against_lines([*LINES, unknown])
    assert not comparison.nothing_missing
    assert (comparison.missing, comparison.unexpected) == (0, 1)


def test_an_empty_topic_proves_nothing() -> None:
    assert not compare(expected_from_values([], "nothing"), drained([])).exactly_once


def test_a_mirror_may_hold_a_record_as_often_as_its_source_and_no_oftener() -> None:
    source = drained([*LINES, LINES[0]])
    assert compare(source, drained([LINES[0], *LINES], topic="src.flights")).exactly_once
    once_more = compare(source, drained([LINES[0], *LINES, LINES[0]], topic="src.flights"))
    assert once_more.duplicates == 1
    once_less = compare(source, drained(list(LINES), topic="src.flights"))
    assert once_less.missing == 1


def test_the_last_offset_of_each_partition_is_kept() -> None:
    assert drained(list(LINES)).last_offsets == {0: 99, 1: 97, 2: 98}
