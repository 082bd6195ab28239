"""The columns of a record: their names, and the types that each may have in a DataFrame and in an Arrow batch.

pyarrow is imported where a batch is looked at: drivers of Spark look at their DataFrame's types alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_eos_provider.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class RecordColumn:
    """One column."""

    spark_types: tuple[str, ...]
    arrow_types: str
    fits: Callable[[pa.DataType], bool]


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
            raise ConfigurationError(
                f"Column {name} is of type {schema.field(name).type}.", expected=column.arrow_types
            )


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type is a string, of either length."""
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    from pyarrow import types

    return is_text(kind) or bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_null(kind))


def _is_headers(kind: pa.DataType) -> bool:
    from pyarrow import types

    if types.is_null(kind):
        return True
    if not (types.is_list(kind) or types.is_large_list(kind)) or not types.is_struct(kind.value_type):
        return False
    fields = {field.name: field.type for field in kind.value_type}
    named = len(fields) == kind.value_type.num_fields and sorted(fields) == ["key", "value"]
    return named and is_text(fields["key"]) and _is_text_or_bytes(fields["value"])


def _is_integer(kind: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind))


def _is_moment(kind: pa.DataType) -> bool:
    from pyarrow import types

    return _is_integer(kind) or bool(types.is_timestamp(kind))


_CONTENT = RecordColumn(("binary", "string"), "binary or string", _is_text_or_bytes)

#: By name, in the order of a record; ``value`` is required.
RECORD_COLUMNS = {
    "key": _CONTENT,
    "value": _CONTENT,
    "headers": RecordColumn(
        ("array<struct<key:string,value:binary>>",), "array<struct<key: string, value: binary>>", _is_headers
    ),
    "topic": RecordColumn(("string",), "string", is_text),
    "partition": RecordColumn(("int",), "int", _is_integer),
    "timestamp": RecordColumn(("timestamp", "bigint"), "timestamp, or milliseconds", _is_moment),
}
