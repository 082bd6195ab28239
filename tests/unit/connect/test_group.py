"""The bytes of a Connect group and what is known from them, written here by an encoder of its own."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from airflow_eos_provider.connect.group import (
    Placement,
    UndecodableError,
    WorkerGroup,
    decode_assignment,
    decode_metadata,
    worker_group,
)
from airflow_eos_provider.kafka.admin import groups

Tasks = Mapping[str, Sequence[int]]

URL = "http://127.0.0.1:{}/"


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def array(tasks: Tasks | None) -> bytes:
    if tasks is None:
        return struct.pack(">i", -1)
    items = [text(name) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers) for name, numbers in tasks.items()]
    return struct.pack(">i", len(items)) + b"".join(items)


def assignment_bytes(
    version: int,
    tasks: Tasks | None,
    *,
    revoked: Tasks | None = None,
    delay: int = 0,
    leader: str = "m1",
    error: int = 0,
    offset: int = 7,
) -> bytes:
    head = struct.pack(">hh", version, error) + text(leader) + text(URL.format(8083)) + struct.pack(">q", offset)
    return head + array(tasks) + (array(revoked) + struct.pack(">i", delay) if version else b"")


def metadata_bytes(version: int, port: int, allocation: bytes | None = None, offset: int = 7) -> bytes:
    head = struct.pack(">h", version) + text(URL.format(port)) + struct.pack(">q", offset)
    if version == 0:
        return head
    return head + (struct.pack(">i", -1) if allocation is None else struct.pack(">i", len(allocation)) + allocation)


def group(protocol: str, *members: tuple[bytes, bytes], state: str = "Stable") -> WorkerGroup:
    described = tuple(
        groups.Member(f"m{n}", f"c{n}", "/127.0.0.1", said, assigned)
        for n, (said, assigned) in enumerate(members, start=1)
    )
    return worker_group(groups.Group("g", state, protocol, "connect", described))


class TestMetadata:
    def test_eager_tells_url_and_offset(self) -> None:
        found = decode_metadata("default", metadata_bytes(0, 8083, offset=42))
        assert found is not None
        assert (found.url, found.config_offset, found.allocation) == (URL.format(8083), 42, None)

    @pytest.mark.parametrize(("protocol", "version"), [("compatible", 1), ("sessioned", 2)])
    def test_the_later_ones_tell_what_the_worker_had(self, protocol: str, version: int) -> None:
        allocation = assignment_bytes(version, {"a": [-1, 0, 1], "b": [3]})
        found = decode_metadata(protocol, metadata_bytes(version, 8083, allocation))
        assert found is not None
        assert found.allocation is not None
        assert found.allocation.connectors == {"a"}
        assert found.allocation.tasks == {("a", 0), ("a", 1), ("b", 3)}

    @pytest.mark.parametrize("cut", [None, -4], ids=["null", "absent, as Java lets it be"])
    def test_a_worker_that_had_nothing_has_no_allocation(self, cut: int | None) -> None:
        found = decode_metadata("sessioned", metadata_bytes(2, 8083, None)[:cut])
        assert found is not None
        assert found.allocation is None

    def test_empty_bytes_are_neither_metadata_nor_an_assignment(self) -> None:
        assert (decode_metadata("sessioned", b""), decode_assignment("sessioned", b"")) == (None, None)


class TestAssignment:
    def test_eager_has_neither_revocations_nor_delay(self) -> None:
        found = decode_assignment("default", assignment_bytes(0, {"a": [-1, 0]}, offset=9))
        assert found is not None
        assert (found.connectors, found.tasks) == ({"a"}, {("a", 0)})
        assert (found.revoked_connectors, found.revoked_tasks, found.delay_ms) == (set(), set(), 0)
        assert (found.error, found.leader, found.leader_url, found.config_offset) == (0, "m1", URL.format(8083), 9)

    @pytest.mark.parametrize(("protocol", "version"), [("compatible", 1), ("sessioned", 2)])
    def test_the_later_ones_have_both(self, protocol: str, version: int) -> None:
        data = assignment_bytes(version, {"a": [2]}, revoked={"b": [-1, 5]}, delay=293987, error=1)
        found = decode_assignment(protocol, data)
        assert found is not None
        assert (found.connectors, found.tasks) == (set(), {("a", 2)})
        assert (found.revoked_connectors, found.revoked_tasks) == ({"b"}, {("b", 5)})
        assert (found.delay_ms, found.error) == (293987, 1)

    @pytest.mark.parametrize(
        ("data", "tasks"),
        [
            pytest.param(assignment_bytes(2, None, revoked=None), set(), id="null arrays"),
            pytest.param(assignment_bytes(2, {"a": [0]})[:-8], {("a", 0)}, id="no fields at the end, as for Java"),
            pytest.param(assignment_bytes(2, {"täsk-1/€": [0]}), {("täsk-1/€", 0)}, id="any name"),
        ],
    )
    def test_what_is_left_out_is_empty_and_names_may_hold_anything(self, data: bytes, tasks: set[Any]) -> None:
        found = decode_assignment("sessioned", data)
        assert found is not None
        assert (found.connectors, found.tasks, found.revoked_tasks, found.delay_ms) == (set(), tasks, set(), 0)


class TestBrokenBytes:
    @pytest.mark.parametrize("length", range(1, len(assignment_bytes(0, {"a": [0]}))))
    def test_a_cut_assignment_is_refused_wherever_it_is_cut(self, length: int) -> None:
        with pytest.raises(UndecodableError, match="ends within"):
            decode_assignment("default", assignment_bytes(0, {"a": [0]})[:length])

    def test_the_error_names_the_field(self) -> None:
        with pytest.raises(UndecodableError, match="metadata ends within url"):
            decode_metadata("sessioned", b"\x00\x02\x00\x20http")

    def test_a_negative_length_is_refused(self) -> None:
        with pytest.raises(UndecodableError, match="url"):
            decode_metadata("sessioned", b"\x00\x02\xff\xfe")

    def test_an_unknown_version_is_refused(self) -> None:
        with pytest.raises(UndecodableError, match="version 3"):
            decode_metadata("sessioned", metadata_bytes(3, 8083))

    def test_a_consumer_protocol_is_refused(self) -> None:
        with pytest.raises(UndecodableError, match="'range' is none of Connect's"):
            decode_metadata("range", b"\x00\x00\x00\x00")

    def test_text_that_is_not_utf_8_is_refused(self) -> None:
        with pytest.raises(UndecodableError, match="not UTF-8"):
            decode_metadata("default", b"\x00\x00\x00\x02\xff\xff" + bytes(8))


class TestPlacement:
    def test_under_eager_it_is_the_assignment(self) -> None:
        found = group("default", (metadata_bytes(0, 8083), assignment_bytes(0, {"a": [-1, 0]})))
        assert found.placement == {"127.0.0.1:8083": Placement(frozenset({"a"}), frozenset({("a", 0)}))}

    @pytest.mark.parametrize(("protocol", "version"), [("compatible", 1), ("sessioned", 2)])
    def test_later_it_is_what_the_worker_had_less_what_it_lost_plus_what_it_got(
        self, protocol: str, version: int
    ) -> None:
        had = assignment_bytes(version, {"a": [-1, 0, 1], "b": [-1]})
        assigned = assignment_bytes(version, {"c": [-1, 0]}, revoked={"a": [1], "b": [-1]})
        found = group(protocol, (metadata_bytes(version, 8083, had), assigned))
        assert found.placement == {
            "127.0.0.1:8083": Placement(frozenset({"a", "c"}), frozenset({("a", 0), ("c", 0)})),
        }

    def test_a_task_that_is_being_revoked_may_still_run_although_it_is_placed_nowhere(self) -> None:
        """The worker ends it first, and joins again then; the group is stable meanwhile."""
        had = assignment_bytes(2, {"a": [-1, 0], "b": [-1]})
        revoking = group("sessioned", (metadata_bytes(2, 8083, had), assignment_bytes(2, {}, revoked={"a": [0]})))
        assert revoking.is_stable
        assert [revoking.may_run(name) for name in ("a", "b")] == [True, False]
        gone = group("sessioned", (metadata_bytes(2, 8083), assignment_bytes(2, {"b": [-1]})))
        assert not gone.may_run("a")
        assert group("sessioned", (metadata_bytes(2, 8083), b"")).may_run("a"), "what is not known may run"

    def test_an_empty_increment_leaves_all_in_place_and_a_worker_without_work_has_an_empty_one(self) -> None:
        had = assignment_bytes(2, {"a": [-1, 0]})
        found = group(
            "sessioned",
            (metadata_bytes(2, 8083, had), assignment_bytes(2, {})),
            (metadata_bytes(2, 8084), assignment_bytes(2, {})),
        )
        assert found.placement == {
            "127.0.0.1:8083": Placement(frozenset({"a"}), frozenset({("a", 0)})),
            "127.0.0.1:8084": Placement(),
        }

    @pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Empty", "Dead"])
    def test_it_is_not_told_outside_a_stable_group(self, state: str) -> None:
        member = (metadata_bytes(2, 8083), assignment_bytes(2, {"a": [0]}))
        assert group("sessioned", member, state=state).placement is None

    @pytest.mark.parametrize(
        "member",
        [
            (metadata_bytes(2, 8084), b""),
            (b"", assignment_bytes(2, {})),
            (metadata_bytes(2, 8084), b"\x00\x02\x00"),
            (b"\x00\x07", assignment_bytes(2, {})),
            (metadata_bytes(2, 8083), assignment_bytes(2, {})),
        ],
        ids=["no assignment", "no metadata", "cut assignment", "unknown version", "address of another member"],
    )
    def test_one_member_that_cannot_be_told_makes_all_untold(self, member: tuple[bytes, bytes]) -> None:
        good = (metadata_bytes(2, 8083), assignment_bytes(2, {"a": [0]}))
        assert group("sessioned", good).placement is not None
        assert group("sessioned", good, member).placement is None

    def test_a_member_that_cannot_be_decoded_says_why(self) -> None:
        (member,) = group("sessioned", (b"\x00\x07", b"")).members
        assert member.problem is not None
        assert "version 7" in member.problem
        assert member.worker_id == "m1"


class TestGroup:
    @pytest.mark.parametrize(
        ("named", "leader"),
        [(("m2", "m2"), "127.0.0.1:8084"), (("m1", "m2"), None), (("m9", "m9"), None)],
        ids=["the one that all name", "members disagree", "one that is gone"],
    )
    def test_the_leader_is_the_member_that_all_name(self, named: tuple[str, str], leader: str | None) -> None:
        first, second = (assignment_bytes(2, {}, leader=each) for each in named)
        found = group("sessioned", (metadata_bytes(2, 8083), first), (metadata_bytes(2, 8084), second))
        assert (found.leader and found.leader.worker_id) == leader

    def test_the_longest_delay_counts(self) -> None:
        found = group(
            "sessioned",
            (metadata_bytes(2, 8083), assignment_bytes(2, {}, delay=0)),
            (metadata_bytes(2, 8084), assignment_bytes(2, {}, delay=3000)),
        )
        assert found.delay_ms == 3000

    def test_the_offset_of_the_assignment_goes_before_that_of_joining(self) -> None:
        found = group(
            "sessioned",
            (metadata_bytes(2, 8083, offset=5), assignment_bytes(2, {}, offset=9)),
            (metadata_bytes(2, 8084, offset=6), b""),
        )
        assert found.config_offsets == {"127.0.0.1:8083": 9, "127.0.0.1:8084": 6}

    def test_a_group_without_members_says_so_little(self) -> None:
        found = group("", state="Empty")
        assert (found.leader, found.placement, found.delay_ms, found.members) == (None, None, 0, ())


def test_the_encoder_of_these_tests_writes_what_the_documentation_says() -> None:
    expected: Any = b"\x00\x00" + b"\x00\x05http:" + bytes(7) + b"\x07"
    assert struct.pack(">h", 0) + text("http:") + struct.pack(">q", 7) == expected
