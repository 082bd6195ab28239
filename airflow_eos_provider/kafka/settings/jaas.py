"""A login of Java's clients in one line: ``sasl.jaas.config``, read as Kafka's ``JaasConfig`` reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_eos_provider.errors import ConfigurationError

_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})

#: What Java's StreamTokenizer takes for one word, as Kafka sets it up: comments, quoted text, words, signs. A quotation
#: or a comment that does not end is one sign, to its end: what is in it is not looked at once more.
_TOKEN = re.compile(
    r"\s+|//[^\n]*|/\*.*?\*/"
    r'|"(?P<double>(?:[^"\\\n]|\\.)*+)"'
    r"|'(?P<single>(?:[^'\\\n]|\\.)*+)'"
    r"|(?P<word>[\w.$+\-]+)"
    r"""|(?P<sign>/\*.*|"(?:[^"\\\n]|\\.)*+|'(?:[^'\\\n]|\\.)*+|.)""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}

_EXPECTED = 'a login module with its options, as in …PlainLoginModule required username="me" password="…";'


@dataclass(frozen=True, slots=True)
class Login:
    """One login module."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    def flag(self, name: str) -> bool:
        """Whether an option is switched on."""
        return self.options.get(name, "").lower() == "true"


def parse_login(text: str) -> Login:
    """The login of ``sasl.jaas.config``.

    :raises ConfigurationError: it is no single login module. Nothing of the text is in the error.
    """
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[1][1].lower() not in _FLAGS or tokens[-1] != ("sign", ";"):
        raise ConfigurationError("sasl.jaas.config cannot be read.", expected=_EXPECTED)
    rest = tokens[2:-1]
    if ("sign", ";") in rest:
        raise ConfigurationError(
            "sasl.jaas.config has more than one login module.", expected="one, as clients of Kafka have"
        )
    options: dict[str, str] = {}
    for name, equals, value in zip(rest[::3], rest[1::3], rest[2::3], strict=False):
        if equals != ("sign", "=") or "sign" in (name[0], value[0]):
            raise ConfigurationError("An option of sasl.jaas.config has no value.", expected=_EXPECTED)
        options[name[1]] = value[1]
    if len(rest) % 3:
        raise ConfigurationError("An option of sasl.jaas.config has no value.", expected=_EXPECTED)
    return Login(tokens[0][1].rpartition(".")[2], options)


def _tokens(text: str) -> list[tuple[str, str]]:
    """Kind (``text`` or ``sign``) and value of each token."""
    found = []
    for match in _TOKEN.finditer(text):
        if match["word"] is not None:
            found.append(("text", match["word"]))
        elif match["sign"] is not None:
            found.append(("sign", match["sign"]))
        elif (quoted := match["double"] if match["double"] is not None else match["single"]) is not None:
            found.append(("text", _ESCAPE.sub(_unescaped, quoted)))
    return found


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0].isdigit() and code[0] < "8" else _ESCAPED.get(code, code)
