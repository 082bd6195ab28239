"""Our reader of properties files against the JDK's own, on the same bytes."""

from __future__ import annotations

import itertools
import random
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path

from airflow_eos_provider.connect.properties import parse, set_property
from airflow_eos_provider.errors import ConfigurationError

#: Reads length-prefixed files from standard input; writes per file the number of properties and their UTF-16 texts.
PROGRAM = """
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;

public class Load {
    public static void main(String[] args) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        for (int files = in.readInt(); files > 0; files--) {
            Properties properties = new Properties();
            try {
                properties.load(new ByteArrayInputStream(in.readNBytes(in.readInt())));
            } catch (IllegalArgumentException malformed) {
                out.writeInt(-1);
                continue;
            }
            out.writeInt(properties.size());
            for (String name : properties.stringPropertyNames()) {
                write(out, name);
                write(out, properties.getProperty(name));
            }
        }
        out.flush();
    }

    static void write(DataOutputStream out, String text) throws IOException {
        out.writeInt(text.length());
        for (char unit : text.toCharArray()) out.writeChar(unit);
    }
}
"""


def java_parse(folder: Path, files: Iterable[bytes]) -> list[dict[str, str] | None]:
    """What ``Properties.load(InputStream)`` makes of each file; None where it refuses it."""
    files = list(files)
    program = folder / "Load.java"
    program.write_text(PROGRAM)
    sent = struct.pack(">i", len(files)) + b"".join(struct.pack(">i", len(data)) + data for data in files)
    done = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-Xmx128m", str(program)], input=sent, capture_output=True, timeout=600
    )
    assert done.returncode == 0, done.stderr.decode()
    position = 0

    def number() -> int:
        nonlocal position
        position += 4
        return int(struct.unpack_from(">i", done.stdout, position - 4)[0])

    def text() -> str:
        nonlocal position
        size = number() * 2
        position += size
        return done.stdout[position - size : position].decode("utf-16-be", "surrogatepass")

    read: list[dict[str, str] | None] = []
    for _ in files:
        count = number()
        read.append({text(): text() for _ in range(count)} if count >= 0 else None)
    assert position == len(done.stdout)
    return read


def our_parse(data: bytes) -> dict[str, str] | None:
    try:
        return parse(data)
    except ConfigurationError:
        return None


def test_java_reads_the_same_from_the_same_bytes_before_and_after_an_edit(tmp_path: Path) -> None:
    pieces = [
        b"k",
        b"a",
        b"=",
        b":",
        b" ",
        b"\t",
        b"\f",
        b"\\",
        b"\\u00e4",
        b"\\u12",
        b"\n",
        b"\r",
        b"\r\n",
        b"#",
        b"!",
    ]
    pieces += [b"\xe4", b"\x00", b"1", b"k=1", b"\\\n", "ä".encode()]
    dice = random.Random(618)
    files = [b"".join(parts) for size in range(4) for parts in itertools.product(pieces, repeat=size)]
    files += [b"".join(dice.choices(pieces, k=dice.randint(4, 40))) for _ in range(20_000)]
    # The JDK reads in pieces of 8 KiB: let line ends and continuations fall on the edge.
    files += [
        b"x" * (8190 + shift) + tail for shift in range(4) for tail in (b"\\\r\n  k=1\nb=2", b"\r\n#\nk=1", b"\\")
    ]
    edits = []
    for data in files:
        try:
            edits.append(set_property(data, "k", " preparing\\ä\n"))
        except ConfigurationError:
            continue
    read = java_parse(tmp_path, [*files, *edits])
    for data, properties in zip([*files, *edits], read, strict=True):
        assert our_parse(data) == properties, data
    assert len(edits) > 10_000
    assert None in read
    assert all(properties is not None and properties["k"] == " preparing\\ä\n" for properties in read[len(files) :])
