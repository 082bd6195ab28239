"""A JAAS line is read as Kafka reads it, and never quoted in an error."""

from __future__ import annotations

import pytest

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.settings.jaas import Login, parse_login

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
CANARY = "c4n4ry-9f"


@pytest.mark.parametrize(
    ("line", "options"),
    [
        (f'{PLAIN} required username="me" password="secret";', {"username": "me", "password": "secret"}),
        (f"{PLAIN} REQUIRED username='me' password='a \"b\"';", {"username": "me", "password": 'a "b"'}),
        (
            f'{PLAIN} required\n  username=me // whose\n  password="a;b=c" /* more */ ;',
            {"username": "me", "password": "a;b=c"},
        ),
        (f'{PLAIN} required password="a\\"b\\\\c\\tz\\101";', {"password": 'a"b\\c\tzA'}),
        (f"{PLAIN} required useKeyTab=true;", {"useKeyTab": "true"}),
        (f'{PLAIN} required oauth.client.id="x" extension_a-b="1";', {"oauth.client.id": "x", "extension_a-b": "1"}),
        (f"{PLAIN} required ;", {}),
    ],
)
def test_a_line_is_a_module_with_its_options(line: str, options: dict[str, str]) -> None:
    assert parse_login(line) == Login("PlainLoginModule", options)


@pytest.mark.parametrize(
    "line",
    [
        "",
        f'{PLAIN} required username="me" password="{CANARY}"',
        f'{PLAIN} username="me" password="{CANARY}";',
        f"{PLAIN} required password {CANARY};",
        f'{PLAIN} required password="{CANARY};',
        f'{PLAIN} required password="{CANARY}"; {PLAIN} required;',
    ],
)
def test_what_is_no_single_login_is_refused_without_being_shown(line: str) -> None:
    with pytest.raises(ConfigurationError, match=r"sasl\.jaas\.config") as refused:
        parse_login(line)
    assert CANARY not in str(refused.value)


def test_a_flag_is_true_or_it_is_not() -> None:
    login = parse_login(f"{PLAIN} required tokenauth=true other=yes;")
    assert (login.flag("tokenauth"), login.flag("other"), login.flag("none")) == (True, False, False)


def test_a_secret_is_in_no_repr() -> None:
    assert CANARY not in repr(parse_login(f'{PLAIN} required password="{CANARY}";'))
