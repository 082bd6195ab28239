from __future__ import annotations

import itertools
import random

import pytest

from airflow_eos_provider.connect.properties import (
    followed,
    parse,
    provider_class,
    read,
    references,
    remove_property,
    set_property,
    trimmed,
    whole_number,
    written,
)
from airflow_eos_provider.errors import ConfigurationError

NAME = "exactly.once.source.support"


@pytest.mark.parametrize(
    ("data", "properties"),
    [
        (b"a=b", {"a": "b"}),
        (b"a = b\n", {"a": "b"}),
        (b"a:b\n", {"a": "b"}),
        (b"a b\n", {"a": "b"}),
        (b"a\tb\n", {"a": "b"}),
        (b"a : = b\n", {"a": "= b"}),
        (b"a\n", {"a": ""}),
        (b"a=\n", {"a": ""}),
        (b"  a=b  \n", {"a": "b  "}),
        (b"#a=b\n!a=c\n  # a=d\n", {}),
        (b"a=1\na=2\n", {"a": "2"}),
        (b"a=1,\\\n   2,\\\n\t3\n", {"a": "1,2,3"}),
        (b"a=1\\\r\n  2\r\n", {"a": "12"}),
        (b"a=1\\\r  2\rb=3", {"a": "12", "b": "3"}),
        (b"a=1\\\\\nb=2\n", {"a": "1\\", "b": "2"}),
        (b"# comment \\\na=1\n", {"a": "1"}),
        (b"a=1\\\n# not a comment\n", {"a": "1# not a comment"}),
        (b"a\\ b\\=c\\:d=e\n", {"a b=c:d": "e"}),
        (b"a=\\u0041\\t\\q\n", {"a": "A\tq"}),
        (b"a=\\ud83d\\ude00\n", {"a": "\N{GRINNING FACE}"}),
        (b"a=\xe4\n", {"a": "ä"}),
        ("a=ä\n".encode(), {"a": "Ã¤"}),
        (b"a=b\\", {"a": "b"}),
        (b"a=b\\\n", {"a": "b"}),
        (b"a=b\\\n\nc=d\n", {"a": "b", "c": "d"}),
        (b"\\\n# a comment after an empty continuation\nc=d\n", {"c": "d"}),
        (b"", {}),
        (b"\n\r\n \t\n", {}),
        (b"=b\n", {"": "b"}),
    ],
)
def test_files_are_read_as_java_reads_them(data: bytes, properties: dict[str, str]) -> None:
    assert parse(data) == properties


@pytest.mark.parametrize("data", [b"a=1\nb=\\u12", b"a=1\nb=\\u12G4\n"])
def test_a_malformed_unicode_escape_is_named_with_its_line(data: bytes) -> None:
    with pytest.raises(ConfigurationError, match=r"Line 2 .* malformed"):
        parse(data)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(b"a=b\n", b"a=b\nexactly.once.source.support=enabled\n", id="absent"),
        pytest.param(b"a=b", b"a=b\nexactly.once.source.support=enabled\n", id="absent, no final line end"),
        pytest.param(b"a=b\r\n", b"a=b\r\nexactly.once.source.support=enabled\r\n", id="absent, Windows line ends"),
        pytest.param(b"a=b\r", b"a=b\rexactly.once.source.support=enabled\r", id="absent, old Mac line ends"),
        pytest.param(b"", b"exactly.once.source.support=enabled\n", id="empty file"),
        pytest.param(b"a=b\\", b"a=b\\\n\nexactly.once.source.support=enabled\n", id="after a lone backslash"),
        pytest.param(b"a=b\\\n", b"a=b\\\n\nexactly.once.source.support=enabled\n", id="after an open continuation"),
        pytest.param(b"# c\\\n", b"# c\\\nexactly.once.source.support=enabled\n", id="after a comment with backslash"),
        pytest.param(
            b"  exactly.once.source.support : disabled\t\n# end",
            b"  exactly.once.source.support : enabled\n# end",
            id="present, own separator",
        ),
        pytest.param(
            b"x=\xe4\r\nexactly.once.source.support=disabled\r\ny=\xc3\xa4",
            b"x=\xe4\r\nexactly.once.source.support=enabled\r\ny=\xc3\xa4",
            id="present, bytes of any encoding around",
        ),
        pytest.param(
            b"exactly.once.source.support=dis\\\n    abled\nz=1\n",
            b"exactly.once.source.support=enabled\nz=1\n",
            id="present, continued",
        ),
        pytest.param(
            b"exactly.once.\\\n  source.support disabled",
            b"exactly.once.\\\n  source.support enabled",
            id="name continued, blank as separator",
        ),
        pytest.param(b"exactly.once.source.support\n", b"exactly.once.source.support=enabled\n", id="name alone"),
        pytest.param(b"exactly.once.source.support=\n", b"exactly.once.source.support=enabled\n", id="empty value"),
        pytest.param(
            b"exactly.once.source.support=disabled\na=1\nexactly.once.source.support=preparing\n",
            b"exactly.once.source.support=enabled\na=1\nexactly.once.source.support=enabled\n",
            id="twice: both, so that no old value is left to come back",
        ),
        pytest.param(
            b"#exactly.once.source.support=disabled\n",
            b"#exactly.once.source.support=disabled\nexactly.once.source.support=enabled\n",
            id="commented out",
        ),
        pytest.param(
            b"exactly.once.source.support=enabled\n", b"exactly.once.source.support=enabled\n", id="already so"
        ),
    ],
)
def test_setting_a_property_keeps_every_other_byte(before: bytes, after: bytes) -> None:
    assert set_property(before, NAME, "enabled") == after


@pytest.mark.parametrize(
    "before",
    [
        b"exactly.once.source.support=${env:MODE}\n",
        b"exactly.once.source.support=${file:/etc/x:m}\n%s=disabled" % NAME.encode(),
    ],
)
def test_a_property_that_a_config_provider_supplies_is_refused(before: bytes) -> None:
    with pytest.raises(ConfigurationError, match="config provider"):
        set_property(before, NAME, "enabled")


def test_an_edit_that_would_change_another_property_is_refused() -> None:
    """Java reads a file of one lone backslash as the property '' = ''; anything after it takes that away."""
    assert parse(b"\\") == {"": ""}
    with pytest.raises(ConfigurationError, match="another line"):
        set_property(b"\\", NAME, "enabled")


@pytest.mark.parametrize(
    "value", ["", " leading", "= x", ": x", "a\\b", "tab\tline\nend\r\f", "ä€\N{GRINNING FACE}", "# x"]
)
def test_any_value_is_read_back_as_it_was_set(value: str) -> None:
    for before in (b"", b"k 1\n", b"k=1\n", b"k\n", b"k \\\n  = 1\\\n  2\n", b"k=\\\n"):
        assert parse(set_property(before, "k", value)) == {"k": value}


def test_any_name_can_be_appended() -> None:
    for name in ("a b", "a=b", "a:b", "#a", "!a", "a\\b", "ä", " a"):
        assert parse(set_property(b"x=1\n", name, "v")) == {"x": "1", name: "v"}


def test_only_the_asked_property_changes_whatever_the_file_looks_like() -> None:
    """All files of up to three pieces that matter to Java's reader, and a sample of longer ones with a fixed seed."""
    pieces = [
        b"k",
        b"a",
        b"=",
        b":",
        b" ",
        b"\t",
        b"\\",
        b"\n",
        b"\r",
        b"\r\n",
        b"#",
        b"!",
        b"1",
        b"\xe4",
        b"k=1",
        b"\f",
    ]
    files = [b"".join(parts) for size in range(4) for parts in itertools.product(pieces, repeat=size)]
    dice = random.Random(618)
    files += [b"".join(dice.choices(pieces, k=dice.randint(4, 14))) for _ in range(2_000)]
    edited = refused = 0
    for data in files:
        before = parse(data)
        try:
            after = set_property(data, "k", "new")
        except ConfigurationError:
            assert "" in before, data  # the one corner that cannot be kept
            refused += 1
            continue
        assert parse(after) == {**before, "k": "new"}, data
        assert set_property(after, "k", "new") == after
        edited += 1
    assert edited > 5_000
    assert refused < edited / 20


def test_references_to_config_providers_are_found_with_their_class() -> None:
    (reference,) = references("${env:MODE}")
    assert (reference.provider, reference.path, reference.key) == ("env", "", "MODE")
    (reference,) = references("x${file:/etc/m.properties:mode}")
    assert (reference.provider, reference.path, reference.key) == ("file", "/etc/m.properties", "mode")
    assert references("$MODE {x} ${MODE}") == ()
    properties = {"config.providers": "file, env", "config.providers.env.class": "org.x.EnvVarConfigProvider"}
    assert provider_class(properties, "env") == "org.x.EnvVarConfigProvider"
    assert provider_class(properties, "vault") is None


# taking one away


def test_taking_a_property_away_leaves_the_file_as_it_was_before_it_was_set() -> None:
    for before in (b"a=1\nb=2\n", b"a=1\r\n# last\r\n", b"a = 1 \\\n  and more\n\n", b""):
        assert remove_property(set_property(before, "isolation.level", "read_committed"), "isolation.level") == before


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a=1\n  k : v \\\n   w\nb=2\n", b"a=1\nb=2\n"),
        (b"k=1\na=1\nk=2", b"a=1\n"),
        (b"# k=1\r\nk=\r\na=1\r\n", b"# k=1\r\na=1\r\n"),
        (b"a=1\nk", b"a=1\n"),
        (b"a=1\n", b"a=1\n"),
        (b"kk=1\nk=2\nk\\u006b=3\n", b"kk=1\nk\\u006b=3\n"),
    ],
    ids=["continued", "twice", "without-value", "bare", "absent", "similar-names"],
)
def test_only_its_own_lines_go(before: bytes, after: bytes) -> None:
    assert remove_property(before, "k") == after


@pytest.mark.parametrize("data", [b"k\\", b"a=1\nk=\\\n", b"\\\nk"])
def test_a_line_that_cannot_be_taken_away_alone_stays(data: bytes) -> None:
    assert "k" in parse(data)
    with pytest.raises(ConfigurationError, match="would change what Java reads"):
        remove_property(data, "k")


def test_a_configuration_is_read_as_kafkas_config_def_reads_it() -> None:
    """What ``String.trim`` takes away: all up to U+0020, and no other blank."""
    assert read(b"a = b \t \nc=\\ \u0001d\\u0000\n") == {"a": "b", "c": "d"}
    assert trimmed({"a": " b\n", "c": None, "d": "\u00a0e"}) == {"a": "b", "c": None, "d": "\u00a0e"}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("7", 7), ("-7", -7), ("+7", 7), ("007", 7), ("1_0", None), ("7.0", None), ("", None), ("${a:b}", None)),
        *((f"{2**63 - 1}", 2**63 - 1), (f"{2**63}", None), (f"-{2**63 + 1}", None)),
        *(("0" * 5_000, 0), ("9" * 5_000, None)),
    ],
)
def test_a_number_is_what_java_takes_for_one(text: str, number: int | None) -> None:
    assert whole_number(text) == number


def test_a_variable_of_the_worker_is_followed_and_any_other_reference_is_no_value() -> None:
    providers = {
        "config.providers": "env, file",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    }
    said = {**providers, "a": "${env:A}", "b": "${file:/f:b}", "c": "${env:GONE}", "d": "x-${env:A}", "e": "${env:A}"}
    found = followed(said, ("a", "b", "c", "d", "absent"), {"A": "configs"}.get)
    assert found == {**said, "a": "configs"}
    assert [written(found, name) for name in "abcd"] == ["configs", "", "", ""]
