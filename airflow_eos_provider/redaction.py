"""Takes secrets out of text from elsewhere, before it is shown or stored.

A connector's trace, a broker's error, a worker's log may repeat a password. Such text goes through :func:`redact`
where it enters, so that nothing behind that place has to think of it; :class:`~airflow_eos_provider.errors.EosError`
does it once more, since every error ends in a log. A secret is known

* by value: what :func:`remember` was given, from cluster descriptions, workers' files and connectors' configurations;
* by shape: ``password=…``, JAAS lines, private keys, addresses with a password in them, well-known tokens.

Values are remembered for the life of the process, as Airflow's own masking does, and are never shown.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote

#: What replaces a secret.
HIDDEN = "***"

#: A property whose name contains one of these is never shown. Compared without dots, dashes, underscores and case, so
#: that ``sasl.jaas.config``, ``CONNECT_SASL_JAAS_CONFIG`` and ``saslJaasConfig`` are one name.
SECRET_WORDS = (
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "keypem",
    "keystore",
    "jaas",
    "oauthbearerconfig",
    "private",
    "credential",
    "apikey",
    "accesskey",
    "basicauth",
)

#: These end the name of a property that speaks of a secret and holds none: its value is not hidden elsewhere.
_NOT_THE_SECRET = ("location", "type", "algorithm", "format", "source", "url", "class", "file", "path", "mechanism")

#: Such values refer to a secret (a config provider's reference, Kafka's own mask) or say nothing.
_NO_VALUE = re.compile(r"^(\$\{.*\}|\[hidden\]|\*+|true|false|null|none|\d{1,4})?$", re.IGNORECASE | re.DOTALL)

#: Shorter values are hidden by shape only: taking "abc" out of every text would leave no text.
SHORTEST_VALUE = 4

#: A value of letters and digits that is shorter than this is hidden only where it is a whole word: with the password
#: "postgres", the class org.postgresql.Driver keeps its name.
_ALONE_BELOW = 16

#: No more values than this are remembered; the oldest are forgotten. A cluster has a few dozen.
_MOST_VALUES = 5_000

#: No more of one text than this is looked at, characters; the rest is dropped.
_LONGEST_TEXT = 256 * 1024

#: From the word that speaks of a secret to the end of the name; what comes before it may stay. A class is no setting.
_NAME = (
    r"(?:password|passwd|passphrase|pwd|secret|token|credentials?|api[._\-]?key|access[._\-]?key|private[._\-]?key"
    r"|key[._\-]pem|user[._\-]info)(?!\w{0,32}(?:Exception|Error)\b)[\w.\-]{0,64}"
)
_VALUE = (
    r"\\\"[^\"\n]{0,4096}?\\\"|\"(?:[^\"\\\n]|\\.){0,4096}\"|'(?:[^'\\\n]|\\.){0,4096}'"
    r"|\[hidden\]|\$\{[^}\n]{0,256}\}|[^\s,;&)}\]\"'<>]+"
)
_SETTING = re.compile(
    rf"(?P<name>(?i:{_NAME}))(?P<mark>\\?[\"']?[ \t]{{0,3}}[=:][ \t]{{0,3}}|\\?[\"']?>)(?P<value>{_VALUE})"
)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?P<kind>[A-Z ]{0,32}PRIVATE KEY)-----.*?(?:-----END [A-Z ]{0,32}PRIVATE KEY-----|\Z)", re.DOTALL
)
_JAAS = re.compile(r"(?P<module>LoginModule\s{1,8}(?:required|requisite|sufficient|optional))\b[^;\n]*")
_ADDRESS = re.compile(
    r"(?P<scheme>\b[a-zA-Z][a-zA-Z0-9+.\-]{1,32}://)(?P<user>[^\s/@:\"']{0,256}):(?P<value>[^\s/\"']{1,256})@"
)
_HEADER = re.compile(
    r"(?P<scheme>\b(?i:basic|bearer)[ \t]{1,3})(?=[A-Za-z+/_.~\-]{0,256}[0-9=])(?P<value>[A-Za-z0-9+/=_.~\-]{8,})"
)
_TOKENS = re.compile(
    # A JSON web token, with what it is joined to: each word is looked at once.
    r"(?<![A-Za-z0-9_-])(?>[A-Za-z0-9_-]*?\beyJ)[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}"
    r"|\bxox[a-z]-[A-Za-z0-9-]{10,}"
)
#: Kafka's words for a value that does not fit, where the property is no ``Password`` by type.
_INVALID_VALUE = re.compile(
    rf"(?P<before>Invalid value )(?P<value>(?:(?!Invalid value )[^\n]){{1,512}}?)"
    rf"(?P<after> for configuration [\w.\-]{{0,64}}?(?i:{_NAME}))"
)

_values: dict[str, None] = {}
_lock = threading.Lock()


def is_secret(name: str) -> bool:
    """Whether the value of a property, or variable, of this name must not be shown."""
    plain = re.sub(r"[\W_]+", "", name).lower()
    return any(word in plain for word in SECRET_WORDS)


def is_secret_itself(name: str) -> bool:
    """Whether a property of this name holds a secret, not only where one is (``ssl.keystore.location``)."""
    return is_secret(name) and not name.lower().endswith(_NOT_THE_SECRET)


def remember(settings: Mapping[str, object]) -> None:
    """Take the secrets of these settings out of every text from now on."""
    remember_values(secrets_of(settings))


def remember_values(values: Iterable[str]) -> None:
    """Take these values out of every text from now on, however they are written there."""
    with _lock:
        for value in values:
            for form in _forms(value):
                _values.pop(form, None)
                _values[form] = None
        for oldest in list(_values)[: max(0, len(_values) - _MOST_VALUES)]:
            del _values[oldest]


def secrets_of(settings: Mapping[str, object]) -> tuple[str, ...]:
    """The secret values of these settings, by their names and by shape."""
    found: dict[str, None] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found.update(dict.fromkeys(secrets_of(value)))
            continue
        text = "" if value is None or isinstance(value, bool) else str(value)
        if is_secret_itself(str(name)):
            found[text] = None
        found.update(dict.fromkeys(_secrets_in(text)))
    return tuple(value for value in found if not _NO_VALUE.match(value))


def redact(text: str) -> str:
    """The text without secrets: neither known ones nor what looks like one."""
    return _without_shapes(_without_values(text[:_LONGEST_TEXT]))


def redact_values(text: str) -> str:
    """The text without known secrets, for words of our own, in which ``password: …`` may be an example."""
    return _without_values(text)


def holds_secret(text: str) -> bool:
    """Whether something in the text looks like a secret."""
    return _without_shapes(text) != text


def _forms(value: str) -> Iterator[str]:
    """A value as it may be written in a text: raw, as JSON, in an address; of several lines, each."""
    forms = {value, json.dumps(value)[1:-1], quote(value, safe="")}
    if "\n" in value:
        forms |= {line.strip() for line in value.splitlines() if len(line.strip()) >= _ALONE_BELOW}
    yield from (form for form in forms if len(form) >= SHORTEST_VALUE)


def _without_values(text: str) -> str:
    with _lock:
        present = [value for value in _values if value in text]
    for value in sorted(present, key=len, reverse=True):
        if len(value) < _ALONE_BELOW and re.fullmatch(r"\w+", value):
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", HIDDEN, text)
        else:
            text = text.replace(value, HIDDEN)
    return text


def _without_shapes(text: str) -> str:
    text = _PRIVATE_KEY.sub(lambda m: f"-----BEGIN {m['kind']}----- {HIDDEN}", text)
    text = _JAAS.sub(lambda m: f"{m['module']} {HIDDEN}", text)
    text = _ADDRESS.sub(lambda m: f"{m['scheme']}{HIDDEN}@", text)
    text = _HEADER.sub(lambda m: f"{m['scheme']}{HIDDEN}", text)
    text = _INVALID_VALUE.sub(lambda m: f"{m['before']}{HIDDEN}{m['after']}", text)
    text = _SETTING.sub(_without_setting, text)
    return _TOKENS.sub(HIDDEN, text)


def _without_setting(match: re.Match[str]) -> str:
    if _NO_VALUE.match(_bare(match["value"])) and not _bare(match["value"]).isdigit():
        return match[0]
    return f"{match['name']}{match['mark']}{HIDDEN}"


def _secrets_in(text: str) -> Iterator[str]:
    """What in a value is secret by shape; the marks around it are left."""
    for pattern in (_SETTING, _ADDRESS, _HEADER):
        yield from (_bare(match["value"]) for match in pattern.finditer(text))


def _bare(value: str) -> str:
    if value.startswith('\\"') and value.endswith('\\"') and len(value) > 3:
        return value[2:-2]
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value
