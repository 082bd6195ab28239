"""The end of a log file as it may be shown: lines that look like secrets are left out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from airflow_eos_provider.redaction import HIDDEN, is_secret, redact

#: No more than this many bytes from the end are looked at.
TAIL_BYTES = 16 << 10

_WITHHELD = "(a line that may hold a secret is left out)"


def tail(log: Path, since: int, *, lines: int = 15, secrets: Iterable[str] = ()) -> str:
    """The last lines that were written to a log.

    :param since: size of the file, in bytes, before the lines that matter.
    :param lines: how many at most.
    :param secrets: values that must not appear, whatever stands around them.
    :returns: the lines, or a sentence if there are none.
    """
    try:
        with log.open("rb") as stream:
            end = stream.seek(0, 2)
            start = max(since if since <= end else 0, end - TAIL_BYTES)
            stream.seek(start)
            text = stream.read().decode("utf-8", "replace")
    except OSError as error:
        return f"(the log {log} cannot be read: {error.strerror})"
    if start > since:
        text = text.partition("\n")[2]  # the first line is cut
    return shown_lines(text, lines=lines, secrets=secrets)


def shown_lines(text: str, *, lines: int = 15, secrets: Iterable[str] = ()) -> str:
    """The last lines of a text as they may be shown; see :func:`tail`."""
    hidden = [secret for secret in secrets if secret]
    shown = []
    for line in [line for line in redact(text).splitlines() if line.strip()][-lines:]:
        unsafe = HIDDEN in line or is_secret(line) or any(secret in line for secret in hidden)
        shown.append(_WITHHELD if unsafe else line[:500])
    return "\n".join(shown) or "(nothing)"
