"""JSON, map order and partitions, beside the Java classes that decide them."""

from __future__ import annotations

import json
import math
import random
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest

from airflow_eos_provider.connect.topics.jackson import encode, hash_map_order
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.write.partitioner import murmur2, partition_of
from airflow_eos_provider.lab.jars.jars import class_path, ensure_jars
from airflow_eos_provider.lab.jars.java import SHORT_LIVED, java_program

PROGRAM = Path(__file__).parents[3] / "java" / "WireFormats.java"
JAVA_SECONDS = 120


class Answer(NamedTuple):
    """What Java made of one value: its bytes, those after reading them back, and their hash."""

    once: bytes | None
    again: bytes | None
    murmur2: int


Java = Callable[[Sequence[Any]], list[Answer]]


@pytest.fixture(scope="module")
def java() -> Iterator[Java]:
    """Connect's JsonConverter and Kafka's hash, in one JVM of their own; a hung one ends after :data:`JAVA_SECONDS`."""
    command = [str(java_program()), *SHORT_LIVED, "-Xmx256m", "-cp", class_path(ensure_jars()), str(PROGRAM)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout
        watchdog = threading.Timer(JAVA_SECONDS, process.kill)
        watchdog.start()

        def send(values: Sequence[Any]) -> None:
            stdin.write(struct.pack(">i", len(values)) + b"".join(map(tagged, values)))
            stdin.flush()

        def ask(values: Sequence[Any]) -> list[Answer]:
            with ThreadPoolExecutor(1) as pool:  # it answers while it is asked, and neither pipe holds everything
                sent = pool.submit(send, values)
                answers = [Answer(block(stdout), block(stdout), *struct.unpack(">i", stdout.read(4))) for _ in values]
                sent.result()
            return answers

        yield ask
        stdin.close()
        assert not stdout.read()
        assert process.wait() == 0
        watchdog.cancel()


def tagged(value: Any) -> bytes:
    """The value for the Java program, which must not learn it from JSON."""
    match value:
        case None:
            return b"n"
        case bool():
            return b"t" if value else b"f"
        case int():
            return b"i" + struct.pack(">q", value)
        case float():
            return b"d" + struct.pack(">d", value)
        case bytes():
            return b"b" + struct.pack(">i", len(value)) + value
        case str():
            units = value.encode("utf-16-be", "surrogatepass")
            return b"s" + struct.pack(">i", len(units) // 2) + units
        case dict():
            pairs = (tagged(part) for pair in value.items() for part in pair)
            return b"m" + struct.pack(">i", len(value)) + b"".join(pairs)
        case _:
            return b"l" + struct.pack(">i", len(value)) + b"".join(map(tagged, value))


def block(stream: IO[bytes]) -> bytes | None:
    (length,) = struct.unpack(">i", stream.read(4))
    return None if length < 0 else stream.read(length)


@pytest.fixture
def dice(seed: int) -> random.Random:
    return random.Random(seed)


def some_text(dice: random.Random) -> str:
    kinds = (
        lambda: chr(dice.randrange(0x20, 0x7F)),
        lambda: chr(dice.randrange(0x20)),
        lambda: dice.choice('"\\/\x7f\x80\u07ff\u0800\u2028\u2029\ufeff\ufffd\uffff\x00\x1f'),
        lambda: chr(dice.randrange(0x80, 0xD800)),
        lambda: chr(dice.randrange(0x10000, 0x110000)),
    )
    return "".join(dice.choice(kinds)() for _ in range(dice.choice((0, 1, 3, 10, 40))))


def some_integer(dice: random.Random) -> int:
    bits = dice.randrange(64)
    return dice.choice((dice.randrange(-(1 << bits), 1 << bits), (1 << 63) - 1, -(1 << 63), 0))


def some_value(dice: random.Random, depth: int = 0) -> Any:
    simple = (lambda: None, lambda: dice.random() < 0.5, lambda: some_integer(dice), lambda: some_text(dice))
    kind = dice.randrange(7 if depth < 3 else 5)
    if kind < 4:
        return simple[kind]()
    if kind == 4:
        return dice.randbytes(dice.randrange(20))
    if kind == 5:
        return [some_value(dice, depth + 1) for _ in range(dice.randrange(5))]
    return {some_text(dice): some_value(dice, depth + 1) for _ in range(dice.randrange(6))}


def deep_order(value: Any) -> Any:
    """The value with every mapping in the order of a HashMap."""
    if isinstance(value, dict):
        return hash_map_order({name: deep_order(member) for name, member in value.items()})
    return [deep_order(member) for member in value] if isinstance(value, list) else value


def test_values_become_the_bytes_that_connect_makes_of_them(java: Java, dice: random.Random) -> None:
    values = [[some_value(dice)] for _ in range(1000)]
    for value, answer in zip(values, java(values), strict=True):
        assert encode(value) == answer.once, value


def test_members_stand_in_the_order_in_which_connect_writes_them_after_reading(java: Java, dice: random.Random) -> None:
    values: list[Any] = [[some_value(dice)] for _ in range(1000)]
    for size in (0, 1, 2, 3, 7, 8, 12, 13, 24, 25, 48, 49, 97, 500, 3000):
        values += [{some_text(dice) + str(n): n for n in range(size)} for _ in range(20 if size < 100 else 2)]
    values += [{"slice": n, "interval": "2013-01-01T05:00:00Z/2013-01-02T05:00:00Z"} for n in range(20)]
    reordered = 0
    for value, answer in zip(values, java(values), strict=True):
        assert encode(deep_order(value)) == answer.again, value
        reordered += answer.once != answer.again
    assert reordered > 100, "Java kept nearly every order, so nothing was tested"


def test_names_with_equal_hashes_keep_their_order_and_make_a_small_table_grow(java: Java) -> None:
    # "Aa" and "BB" have one hashCode, so have all words of n such pairs: 2^n names in one bucket.
    def colliding(count: int) -> list[str]:
        return ["".join("BB" if n >> bit & 1 else "Aa" for bit in range(4)) for n in range(count)]

    values = []
    for count in (2, 8, 9, 10):
        names = colliding(count)
        values += [dict.fromkeys(names, 1), dict.fromkeys([*reversed(names)], 1)]
        values += [dict.fromkeys([f"k{n}" for n in range(9)] + names[:8], 1)]
    for value, answer in zip(values, java(values), strict=True):
        assert encode(hash_map_order(value)) == answer.again, value


def test_so_many_equal_hashes_that_java_would_build_a_tree_are_refused() -> None:
    names = ["".join("BB" if n >> bit & 1 else "Aa" for bit in range(4)) for n in range(16)]
    with pytest.raises(ConfigurationError, match="share one bucket"):
        hash_map_order(dict.fromkeys(names, 1))


def test_doubles_are_the_shortest_digits_in_java_s_form(java: Java, dice: random.Random) -> None:
    special = [0.0, -0.0, 1.0, 1e10, 1e-5, 1.1, 1e-3, 9.999e-4, 1e7, 9999999.0, 5e-324, 1.5e300, 2.0**63, 1e22, 0.05]
    special += [math.nan, math.inf, -math.inf]
    values = special + [struct.unpack(">d", dice.randbytes(8))[0] for _ in range(2000)]
    values += [round(dice.uniform(-1e8, 1e8), dice.randrange(9)) for _ in range(2000)]
    longer = 0
    for number, answer in zip(values, java([[value] for value in values]), strict=True):
        assert answer.once is not None
        ours, theirs = encode([number]), answer.once
        if ours != theirs:
            # Before Java 19, Double.toString could write a digit more than needed (JDK-4511638); never another number.
            assert json.loads(theirs) == json.loads(ours) == [number]
            assert number not in special
            assert len(theirs) >= len(ours)
            longer += 1
    assert longer < len(values) / 4


def test_partitions_are_those_of_java_s_producer(java: Java, dice: random.Random) -> None:
    values = [["p", some_text(dice)] for _ in range(2000)]
    for value, answer in zip(values, java(values), strict=True):
        assert answer.once is not None
        assert murmur2(encode(value)) == answer.murmur2, value
    assert murmur2(b"21") == -973932308  # from Kafka's own tests
    assert partition_of(b"21", 1000) == (-973932308 & 0x7FFFFFFF) % 1000


def test_lone_surrogates_are_escaped_too() -> None:
    assert encode("a\ud800b") == b'"a\\uD800b"'


@pytest.mark.parametrize("value", [1 << 63, {1: 2}, object(), {"set": {1, 2}}])
def test_what_connect_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError):
        encode(value)
