"""Changes of source offsets, decided from what stands."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from airflow_eos_provider.connect.topics.source_offsets import offset_key
from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.kafka.read.reader import LogRecord
from airflow_eos_provider.kafka.write.partitioner import partition_of
from airflow_eos_provider.offsets.offsets_topic import OffsetsTopic
from airflow_eos_provider.offsets.seen.backup import BackedUpTopic, Backup
from airflow_eos_provider.offsets.verbs.offset_changes import (
    Places,
    Write,
    alter,
    copy,
    copy_saved,
    migrate,
    one_for_each,
    require_one_place,
    reset,
    restore,
)
from airflow_eos_provider.offsets.verbs.offsets_request import Wanted
from tests.unit.offsets.topics import topic_of

PARTITIONS = 5
A, B = offset_key("c", {"file": "a"}), offset_key("c", {"file": "b"})
ODD = b'["c",{"z":"1","a":"2"}]'  # not Java's order


def topic(name: str, *entries: tuple[bytes, bytes | None] | tuple[bytes, bytes | None, int]) -> OffsetsTopic:
    def record(position: int, key: bytes, value: bytes | None, partition: int | None = None) -> LogRecord:
        return LogRecord(name, home(key) if partition is None else partition, position, position, key, value)

    return topic_of(name, [record(position, *entry) for position, entry in enumerate(entries)], PARTITIONS)


def home(key: bytes) -> int:
    return partition_of(key, PARTITIONS)


def test_a_reset_removes_every_key_of_the_connector_in_both_topics_and_no_other() -> None:
    own = topic("own", (A, b"1"), (ODD, b"2"))
    global_ = topic("global", (A, b"0"), (offset_key("other", {}), b"9"), (B, None))
    assert reset(Places("c", [own, global_]), {}) == [
        Write("own", home(A), A, b"1", None),
        Write("global", home(A), A, b"0", None),
        Write("own", home(ODD), ODD, b"2", None),
    ]


def test_a_reset_of_some_source_partitions_leaves_the_others() -> None:
    places = Places("c", [topic("global", (A, b"1"), (B, b"2"))])
    assert reset(places, {"file": "b"}) == [Write("global", home(B), B, b"2", None)]
    assert reset(places, {"file": "x"}) == []


def test_a_key_that_stands_in_two_partitions_is_removed_from_both() -> None:
    elsewhere = (home(A) + 1) % PARTITIONS
    places = Places("c", [topic("global", (A, b"1"), (A, b"2", elsewhere))])
    assert {(write.kafka_partition, write.after) for write in reset(places, {})} == {(home(A), None), (elsewhere, None)}
    (gone,) = (w for w in alter(places, [Wanted({"file": "a"}, {"n": 7})]) if w.kafka_partition == elsewhere)
    assert gone.after is None


@pytest.mark.parametrize("value", [b"2", None], ids=["an offset", "a removal"])
def test_where_a_key_has_strayed_tasks_might_read_what_is_there(value: bytes | None) -> None:
    require_one_place("c", topic("global", (A, b"1"), (B, None)))
    with pytest.raises(RefusedError, match="1 key of c is in another partition of global") as caught:
        require_one_place("c", topic("global", (A, b"1"), (A, value, (home(A) + 1) % PARTITIONS), (B, b"1")))
    assert "eos offsets migrate c --to own" in str(caught.value.remedy)
    with pytest.raises(RefusedError) as caught:
        require_one_place("c", topic("global", (A, b"1", (home(A) + 1) % PARTITIONS)), exists=False)
    assert "Create c stopped" in str(caught.value.remedy)


def test_an_altered_offset_is_written_where_tasks_look_first_and_replaced_where_it_stands_below() -> None:
    own, global_ = topic("own", (A, b'{"n":1}')), topic("global", (A, b'{"n":0}'))
    assert alter(Places("c", [own, global_]), [Wanted({"file": "a"}, {"n": 5})]) == [
        Write("own", home(A), A, b'{"n":1}', b'{"n":5}'),
        Write("global", home(A), A, b'{"n":0}', b'{"n":5}'),
    ]
    assert alter(Places("c", [own, global_]), [Wanted({"file": "b"}, {"n": 5})], unlike=True) == [
        Write("own", home(B), B, None, b'{"n":5}')
    ]


@pytest.mark.parametrize(
    ("partition", "offset", "differs"),
    [
        ({"file": "a"}, {"postion": 1}, "has the member 'postion'"),
        ({"file": "a"}, {}, "lacks the member 'n'"),
        ({"file": "a"}, {"n": "100"}, "'n' .* is a text"),
        ({"file": "a"}, {"n": 1.0}, "'n' .* is a fraction"),
        ({"file": "a"}, {"n": True}, "'n' .* is true or false"),
        ({"file": "a"}, {"n": None}, "'n' .* is null"),
        ({"file": "other"}, {"n": 1}, "source partition .*other.* has no offset"),
        ({"file": 1}, {"n": 1}, "source partition .*1.* has no offset"),
        (None, {"n": 1}, "source partition null has no offset"),
    ],
)
def test_an_offset_that_is_not_like_the_present_ones_is_refused_unless_allowed(
    partition: dict[str, object] | None, offset: dict[str, object], differs: str
) -> None:
    places = Places("c", [topic("global", (A, b'{"n":1}'), (B, b'{"n":2,"snapshot":true}'))])
    with pytest.raises(RefusedError, match=differs):
        alter(places, [Wanted(partition, offset)])
    assert alter(places, [Wanted(partition, offset)], unlike=True)


def test_a_member_that_only_some_offsets_have_may_be_left_out_or_given() -> None:
    places = Places("c", [topic("global", (A, b'{"n":1}'), (B, b'{"n":2,"snapshot":true}'))])
    for offset in ({"n": 5}, {"n": 5, "snapshot": False}):
        assert alter(places, [Wanted({"file": "a"}, offset)])


def test_values_of_another_type_are_other_values() -> None:
    keys = {text: offset_key("c", {"n": json.loads(text)}) for text in ("1", "1.0", "true", '"1"')}
    places = Places("c", [topic("global", *((key, b'{"p":1}') for key in keys.values()))])
    for text, key in keys.items():
        assert [write.key for write in reset(places, {"n": json.loads(text)})] == [key]
        assert [write.key for write in alter(places, [Wanted({"n": json.loads(text)}, {"p": 2})])] == [key]


def test_one_offset_for_each_source_partition_is_for_those_that_have_one_within_a_filter() -> None:
    below = topic("global", (A, b"1"), (B, b"2"), (ODD, b"3"), (offset_key("c", None), b"4"))
    every = [None, {"a": "2", "z": "1"}, {"file": "a"}, {"file": "b"}]
    assert one_for_each(Places("c", [below]), {}, {"n": 0}) == [Wanted(partition, {"n": 0}) for partition in every]
    assert one_for_each(Places("c", [below]), {"file": "b"}, {"n": 0}) == [Wanted({"file": "b"}, {"n": 0})]
    assert one_for_each(Places("c", [below]), {"file": "x"}, None) == []
    with pytest.raises(ConfigurationError, match=r'none has {"file": "x"}'):
        one_for_each(Places("c", [below]), {"file": "x"}, {"n": 0})
    # The tasks read the own topic alone; a removal is of all there is.
    both = Places("c", [topic("own", (A, b"1"), (B, None)), below])
    assert one_for_each(both, {}, {"n": 0}) == [Wanted({"file": "a"}, {"n": 0})]
    assert one_for_each(both, {}, None) == [Wanted(partition, None) for partition in every]


def test_an_altered_offset_keeps_the_spelling_of_its_key() -> None:
    places = Places("c", [topic("global", (ODD, b'{"n":1}'))])
    (write,) = alter(places, [Wanted({"a": "2", "z": "1"}, {"n": 2})])
    assert write.key == ODD


def test_two_spellings_of_a_source_partition_can_be_removed_but_not_altered() -> None:
    canonical = offset_key("c", {"a": "2", "z": "1"})
    places = Places("c", [topic("global", (ODD, b"1"), (canonical, b"2"))])
    with pytest.raises(ConfigurationError, match="2 spellings"):
        alter(places, [Wanted({"a": "2", "z": "1"}, {"n": 2})])
    assert {write.key for write in alter(places, [Wanted({"a": "2", "z": "1"}, None)])} == {ODD, canonical}


def test_what_is_already_so_is_not_written() -> None:
    places = Places("c", [topic("global", (A, b'{"n":1}'))])
    (write,) = alter(places, [Wanted({"file": "a"}, {"n": 1})])
    assert not write.changes


def test_one_source_partition_named_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="named twice"):
        alter(Places("c", [topic("global")]), [Wanted({"a": 1}, None), Wanted({"a": 1}, {"n": 1})])


def backup_of(*topics: OffsetsTopic, connectors: tuple[str, ...] | None = None) -> Backup:
    records = tuple(r for one in topics for found in one.committed.values() for r in found if not r.is_removed)
    saved = tuple(BackedUpTopic(one.name, one.id, one.ends) for one in topics)
    return Backup("cluster", "g", 0.0, connectors, saved, records)


def test_a_restore_brings_back_what_was_and_removes_what_came_since() -> None:
    before = backup_of(topic("global", (A, b"1"), (offset_key("other", {}), b"9")))
    now = Places("c", [topic("global", (A, b"5"), (B, b"6"))])
    assert restore(now, before) == [
        Write("global", home(A), A, b"5", b"1"),
        Write("global", home(B), B, b"6", None),
    ]


def test_a_restore_writes_each_key_where_it_belongs_now() -> None:
    """The backup is of a topic with other partitions, or had a key in two; the newest counts."""
    away = (home(A) + 1) % PARTITIONS
    before = backup_of(topic("global", (A, b"1", away), (A, b"2", home(A)), (B, b"3", (home(B) + 1) % PARTITIONS)))
    now = Places("c", [topic("global", (A, b"5"))])
    assert restore(now, before) == [Write("global", home(A), A, b"5", b"2"), Write("global", home(B), B, None, b"3")]


def test_a_migration_takes_of_a_strayed_key_what_tasks_have_written_last() -> None:
    """They write where it belongs; what stands elsewhere is older, or not theirs."""
    away = (home(A) + 1) % PARTITIONS

    def moved(*entries: tuple[bytes, bytes | None, int]) -> list[tuple[bytes, bytes | None]]:
        return [(write.key, write.after) for write in migrate("c", [topic("global", *entries)], topic("own"))]

    assert moved((A, b"1", away), (A, b"2", home(A))) == [(A, b"2")]
    assert moved((A, b"2", home(A)), (A, b"1", away)) == [(A, b"2")]
    assert moved((A, b"1", away)) == [(A, b"1")]  # no task has written since the topic got more partitions
    assert moved((A, b"1", away), (A, None, home(A))) == []  # a reset by Connect
    assert moved((A, b"2", home(A)), (A, None, away)) == [(A, b"2")]


def test_a_backup_without_a_topic_of_the_connector_is_refused() -> None:
    """It was taken before the connector had that topic, or while its brokers did not answer."""
    before = backup_of(topic("global", (A, b"1")))
    for own in (topic("there/own", (A, b"2")), topic("there/own")):  # its first offset may come at any moment
        with pytest.raises(ConfigurationError, match="without there/own, where c has its offsets now"):
            restore(Places("c", [own, topic("global")]), before)
    incomplete = replace(before, without=("c",))
    with pytest.raises(ConfigurationError, match="without the own offsets topic of c"):
        restore(Places("c", [topic("global")]), incomplete)
    with pytest.raises(ConfigurationError, match="without the own offsets topic of c"):
        copy_saved("c", incomplete, Places("d", [topic("global")]))


def test_a_restore_from_a_backup_of_others_or_into_other_topics_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="is of d, not of c"):
        restore(Places("c", [topic("global")]), backup_of(topic("global"), connectors=("d",)))
    with pytest.raises(ConfigurationError, match="in own, which is no offsets topic of it now"):
        restore(Places("c", [topic("global")]), backup_of(topic("own", (A, b"1"))))


def test_into_an_own_topic_go_the_offsets_that_tasks_read_and_old_ones_there_are_removed() -> None:
    global_ = topic("global", (A, b"1"), (ODD, b"2"), (offset_key("other", {}), b"9"))
    own = topic("own", (A, b"0"), (B, b"5"))  # left from a former time
    assert migrate("c", [global_], own) == [
        Write("own", home(A), A, b"0", b"1"),
        Write("own", home(ODD), ODD, None, b"2"),
        Write("own", home(B), B, b"5", None),
    ]


def test_into_another_topic_go_the_offsets_of_the_own_one_which_tasks_read_alone_and_it_keeps_them() -> None:
    own, global_ = topic("own", (A, b"7")), topic("global", (A, b"6"), (B, b"5"))
    assert [write for write in migrate("c", [own, global_], global_) if write.changes] == [
        Write("global", home(A), A, b"6", b"7"),
        Write("global", home(B), B, b"5", None),
    ]
    another = topic("another")
    assert migrate("c", [own, global_], another) == [Write("another", home(A), A, None, b"7")]


def test_what_an_own_topic_that_was_given_by_hand_lacks_is_taken_from_the_global_one() -> None:
    empty, global_ = topic("own"), topic("global", (A, b"6"))
    assert migrate("c", [empty, global_], empty) == [Write("own", home(A), A, None, b"6")]
    assert not any(write.changes for write in migrate("c", [empty, global_], global_))


def test_a_copy_keeps_the_spelling_of_the_source_partition_and_leaves_what_the_other_one_lacks() -> None:
    spaced = b'[ "c" , {"file": "a"}]'
    global_ = topic("global", (spaced, b"1"), (ODD, b"2"), (offset_key("d", {"file": "b"}), b"9"))
    assert {(write.key, write.after) for write in copy("c", [global_], Places("d", [global_]))} == {
        (b'[ "d" , {"file": "a"}]', b"1"),
        (b'["d",{"z":"1","a":"2"}]', b"2"),
    }


def test_a_copy_from_a_backup_of_another_group_takes_what_the_tasks_read_there() -> None:
    places = Places("c", [topic("own-here"), topic("global-here", (B, b"9"))])
    global_, own = topic("global", (A, b"1"), (B, b"2")), topic("own", (A, b"3"))
    both = backup_of(global_, own)
    of_own = replace(both, topics=(both.topics[0], replace(both.topics[1], own_of=("c",))))
    assert copy_saved("c", of_own, places) == [Write("own-here", home(A), A, None, b"3")]
    assert {(write.topic, write.key, write.after) for write in copy_saved("c", backup_of(global_), places)} == {
        ("own-here", A, b"1"),
        ("own-here", B, b"2"),
        ("global-here", B, b"2"),
    }
    renamed = offset_key("d", {"file": "a"})
    assert [write.key for write in copy_saved("c", of_own, Places("d", [topic("global")]))] == [renamed]
    with pytest.raises(ConfigurationError, match="no offsets of x") as refused:
        copy_saved("x", both, places)
    assert refused.value.expected == "one of c"
