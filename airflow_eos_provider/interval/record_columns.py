"""The columns of a record: their names, and the types that each may have in a DataFrame and in an Arrow batch.

pyarrow is imported where a batch is looked at: drivers of Spark look at their DataFrame's types alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_eos_provider.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class RecordColumn:
    """One column: its types in Spark, in words and in Arrow (as ``pyarrow.types`` names them; none for headers)."""

    spark_types: tuple[str, ...]
    words: str
    arrow_types: tuple[str, ...] = ()

    def fits(self, kind: pa.DataType) -> bool:
        return _is_a(kind, self.arrow_types) if self.arrow_types else _is_headers(kind)


def check_columns(schema: pa.Schema) -> None:
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise ConfigurationError(f"The rows have more than one column {name}.", expected="one of each name")
    unknown = [name for name in schema.names if name not in RECORD_COLUMNS]
    if unknown:
        raise ConfigurationError(
            f"Column {unknown[0]} has no place in a Kafka record.",
            expected=f"columns among {', '.join(RECORD_COLUMNS)}",
        )
    if "value" not in schema.names:
        raise ConfigurationError("Column value is missing.", expected="a column value, of binary or string")
    for name, column in RECORD_COLUMNS.items():
        if name in schema.names and not column.fits(schema.field(name).type):
            raise ConfigurationError(f"Column {name} is of type {schema.field(name).type}.", expected=column.words)


def _is_a(kind: pa.DataType, names: Iterable[str]) -> bool:
    from pyarrow import types

    return any(getattr(types, f"is_{name}")(kind) for name in names)


def _is_headers(kind: pa.DataType) -> bool:
    if not _is_a(kind, ("list", "large_list")) or not _is_a(kind.value_type, ("struct",)):
        return _is_a(kind, ("null",))
    fields = {field.name: field.type for field in kind.value_type}
    named = len(fields) == kind.value_type.num_fields and sorted(fields) == ["key", "value"]
    return named and _is_a(fields["key"], _TEXT) and _is_a(fields["value"], _CONTENT.arrow_types)


_TEXT = ("string", "large_string")
_CONTENT = RecordColumn(("binary", "string"), "binary or string", (*_TEXT, "binary", "large_binary", "null"))

#: By name, in the order of a record; ``value`` is required.
RECORD_COLUMNS = {
    "key": _CONTENT,
    "value": _CONTENT,
    "headers": RecordColumn(("array<struct<key:string,value:binary>>",), "array<struct<key: string, value: binary>>"),
    "topic": RecordColumn(("string",), "string", _TEXT),
    "partition": RecordColumn(("int",), "int", ("integer",)),
    "timestamp": RecordColumn(("timestamp", "bigint"), "timestamp, or milliseconds", ("integer", "timestamp")),
}
