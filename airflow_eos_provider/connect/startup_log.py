"""The mode that a worker printed when it started.

A worker writes all its settings at INFO, once, after it has scanned its plugins: a block headed ``DistributedConfig
values:``. That block has the settings that the process really uses, even if its file was edited since. Only a block
dated after the process's start belongs to it, since the same log has the earlier starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.errors import ConfigurationError

#: No more than this many bytes of one log are looked through.
LIMIT_BYTES = 1 << 30

#: How far the printed settings may reach beyond their head line, in bytes; they are about 6 KB.
_BLOCK_BYTES = 64 << 10

#: A worker prints its settings this many seconds after its start at the latest; scanning many plugins takes minutes.
STARTUP_SECONDS = 15 * 60.0

#: The start time of a process is known to 10 ms, a log's to 1 ms; a file's clock ticks in 4 ms.
_TOLERANCE_SECONDS = 0.1

_NOT_SEARCHED = (".gz", ".zip", ".bz2", ".xz", ".zst", ".pid")

#: What ``grep -a -b -e … -e …`` is to look for in a log: see :func:`mode_from_searched_logs`.
#: Basic regular expressions without spaces; a dot is any character.
SEARCHED = ("Config.values:", f"{MODE_PROPERTY}.=.")

_HEAD = re.compile(rb"DistributedConfig values:")
_OTHER_HEAD = re.compile(rb"[A-Za-z]Config values:")
_SETTING = re.compile(re.escape(MODE_PROPERTY).encode() + rb" = ([A-Za-z]+)")
_DATE = re.compile(rb"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,6})\d*)?\s?(Z|[+-]\d\d:?\d\d)?")


@dataclass(frozen=True, slots=True)
class StartupLog:
    """What a worker's log shows of the mode that its present process started with.

    :param mode: the mode, None if the log does not prove one.
    """

    mode: Mode | None
    detail: str


@dataclass(frozen=True, slots=True)
class _Block:
    text: str | None
    moment: float | None


def mode_from_searched_logs(
    log: str, searched: Iterable[tuple[str, bytes]], started_at: float, *, zone: tzinfo | None = None
) -> StartupLog:
    """The mode that the process started at ``started_at`` printed in its logs.

    Kafka's own logging settings rotate a log every hour, so the rotated ones beside it count, too
    (``connect.log.2026-11-20-17``).

    :param started_at: the process's start, seconds since the epoch, true to some 10 ms.
    :param zone: time zone of dates that name none; this machine's if not given.
    :param searched: the log's name and what ``grep -a -b`` found in it for :data:`SEARCHED`, then those of rotated
        logs, newest first; no more of them are taken than are needed.
    """
    problem = f"the log {log} holds no start-up of this process (its settings are printed at INFO)"
    for file, found in searched:
        blocks = _searched_blocks(found, zone)
        own = [block for block in blocks if _is_of_start(block.moment, started_at)]
        if own:
            return _verdict(own, f"the log {file}", f"{file}, {_shown(own[-1].moment or 0.0)}")
        if blocks:
            problem = _why_not(blocks[-1], file, started_at)
    return StartupLog(None, problem)


def _searched_blocks(found: bytes, zone: tzinfo | None) -> list[_Block]:
    """The blocks of which ``grep`` has printed the heads' lines and the mode's, each behind its offset in the file."""
    kept: list[bytes] = []
    head_at = None
    for line in found.splitlines(keepends=True):
        offset, _, text = line.partition(b":")
        if not offset.isdigit():
            continue
        if _HEAD.search(text):
            head_at = int(offset)
        if head_at is not None and int(offset) - head_at <= _BLOCK_BYTES:
            kept.append(text)
    chunk = b"".join(kept)
    return [_block(chunk, head, zone) for head in _HEAD.finditer(chunk)]


def mode_from_own_log(text: bytes, where: str) -> StartupLog | None:
    """The mode in a log that holds one start only, so that no date is needed."""
    blocks = [_block(text, head, None) for head in _HEAD.finditer(text)]
    return _verdict(blocks, where, where) if blocks else None


def _verdict(blocks: list[_Block], file: str, where: str) -> StartupLog:
    texts = {block.text for block in blocks}
    if len(texts) > 1:
        shown = ", ".join(sorted(text or "none" for text in texts))
        return StartupLog(None, f"{file} contains several start-ups of that time, with {shown}")
    text = texts.pop()
    if text is None:
        return StartupLog(None, f"the start-up settings in {file} do not name {MODE_PROPERTY} (Kafka before 3.3?)")
    try:
        mode = Mode.parse(text)
    except ConfigurationError as error:
        return StartupLog(None, f"start-up log: {error.found}")
    return StartupLog(mode, f"started with {mode} ({where})")


def _why_not(block: _Block, file: str, started_at: float) -> str:
    if block.moment is None:
        return f"the last start-up in {file} carries no date, so it is unknown which start it is of"
    when = "before" if block.moment < started_at else "long after"
    return (
        f"the last start-up in {file} is of {_shown(block.moment)}, {when} this process started "
        f"({_shown(started_at)}); perhaps its logging is set above INFO, or its dates are of another time zone"
    )


def _is_of_start(moment: float | None, started_at: float) -> bool:
    return moment is not None and started_at - _TOLERANCE_SECONDS <= moment <= started_at + STARTUP_SECONDS


def is_rotated(log: str, name: str) -> bool:
    """Whether a file beside a log is one that was rotated away, and can be searched as it is."""
    return name.startswith((f"{log}.", f"{log}-")) and not name.endswith(_NOT_SEARCHED)


def _block(chunk: bytes, head: re.Match[bytes], zone: tzinfo | None) -> _Block:
    body_end = head.end() + _BLOCK_BYTES
    other = _OTHER_HEAD.search(chunk, head.end(), body_end)
    setting = _SETTING.search(chunk, head.end(), other.start() if other else body_end)
    line_start = chunk.rfind(b"\n", 0, head.start()) + 1
    line_end = chunk.find(b"\n", head.end())
    line = chunk[line_start : line_end if line_end >= 0 else len(chunk)]
    text = setting[1].decode("ascii") if setting else None
    dated = _DATE.search(line)
    return _Block(text, _moment(dated, zone) if dated else None)


def _moment(match: re.Match[bytes], zone: tzinfo | None) -> float | None:
    date, clock, fraction, offset = (group.decode("ascii") if group else "" for group in match.groups())
    try:
        moment = datetime.fromisoformat(f"{date} {clock}").replace(microsecond=int(fraction.ljust(6, "0") or 0))
    except ValueError:
        return None
    if offset == "Z":
        return moment.replace(tzinfo=UTC).timestamp()
    if offset:
        return datetime.fromisoformat(f"{moment.isoformat()}{offset[:3]}:{offset[-2:]}").timestamp()
    return moment.replace(tzinfo=zone).timestamp()


def _shown(moment: float) -> str:
    return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S")
