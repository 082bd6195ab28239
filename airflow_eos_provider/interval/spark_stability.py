"""Which rows belong to which slice must not depend on the attempt: the plan of a DataFrame, searched for chance.

A slice is written once and skipped ever after, so a row that moves to another slice in a later attempt is lost or
doubled. Content may be recomputed, membership may not. What decides membership are the key columns, traced back through
the plan to where they are made, and everything that decides which rows there are (filters, joins, limits, samples).

What a plan cannot tell stays with the user: a Python function that says it is deterministic and is not, a window's
``row_number()`` over an order with ties, a source that is no file and changes (files are pinned).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame

from airflow_eos_provider.errors import ConfigurationError

#: Deterministic in Spark's eyes, since one query sees one value; another attempt is another query.
_CLOCKS = frozenset({"CurrentTimestamp", "CurrentDate", "CurrentTime", "LocalTimestamp", "Now", "CurrentTimestampLike"})

#: Aggregates that take whichever row comes first.
_BY_ARRIVAL = frozenset({"First", "Last", "AnyValue", "CollectList", "CollectSet", "ListAgg", "HistogramNumeric"})

#: Not deterministic in Spark's eyes, since it depends on the place in a file; the files are the same in every attempt.
_PINNED_BY_FILES = frozenset({"InputFileName"})

_SUBQUERIES = frozenset({"ScalarSubquery", "LateralSubquery", "ListQuery", "Exists"})

#: Nodes that move rows, or order them, and neither make nor drop one.
_MOVES_ONLY = frozenset({"Repartition", "RepartitionByExpression", "RebalancePartitions", "Sort", "ResolvedHint"})

#: Nodes whose output columns stand for the columns of the same position of each child.
_BY_POSITION = frozenset({"Union", "Intersect", "Except"})

_REMEDY = (
    "Take the slice from columns that every attempt computes alike (a natural key), or write such values to a table "
    "first and read them from there."
)


def refuse_unstable(frame: DataFrame, key: Sequence[str]) -> None:
    """Check that each attempt would put the same rows into the same slices.

    :param key: columns that the slice is taken from.
    :raises ConfigurationError: a row's slice, or whether there is the row, depends on chance, on the clock or on the
        order of arrival; or the frame is a stream or a frame of Spark Connect, whose plan cannot be looked at.
    """
    if not hasattr(frame, "_jdf"):
        raise ConfigurationError(
            "The DataFrame belongs to a Spark Connect session, whose plan cannot be checked from here.",
            expected="a DataFrame of a classic session",
            remedy="Run the function by spark-submit, or with a master of its own (spark.master, not spark.remote).",
        )
    if frame.isStreaming:
        raise ConfigurationError(
            "The DataFrame is a stream.", expected="a batch", remedy="Read the interval by spark.read, not readStream."
        )
    plan = frame._jdf.queryExecution().analyzed()
    wanted = {name.lower() for name in key}
    needed = {_id(column) for column in _each(plan.output()) if column.name().lower() in wanted}
    _search(plan, needed)


def _search(node: Any, needed: set[str]) -> None:
    """Look at one node and everything below it.

    :param needed: ids of the columns whose values decide membership.
    """
    kind = _kind(node)
    if kind in ("GlobalLimit", "LocalLimit", "Offset", "Tail") and not _is_sorted(node):
        raise _refusal("limit (or offset) without an order", "keeps whichever rows arrive first")
    if kind == "Sample":
        raise _refusal("sample", "keeps rows by chance")
    if kind in ("Deduplicate", "DeduplicateWithinWatermark"):
        kept = {_id(column) for column in _each(node.keys())}
        if needed - kept:
            raise _refusal("dropDuplicates over other columns than the key", "keeps whichever row arrives first")
    below = set(needed)
    for expression in () if kind in _MOVES_ONLY else _each(node.expressions()):
        if _kind(expression) == "Alias" and _id(expression) not in needed:
            continue  # makes a column that decides nothing: its content may differ from attempt to attempt
        _require_stable(expression)
        below |= {_id(reference) for reference in _each(expression.references())}
        for subquery in _plans_within(expression):
            _search(subquery, {_id(column) for column in _each(subquery.output())})
    for child in _each(node.children()):
        if kind in _BY_POSITION:
            pairs = zip(_each(node.output()), _each(child.output()), strict=True)
            decides = {_id(own) for outer, own in pairs if kind != "Union" or _id(outer) in needed}
            _search(child, decides | below)
        else:
            _search(child, below)


def _require_stable(expression: Any) -> None:
    for part in _parts(expression):
        kind = _kind(part)
        if kind in _PINNED_BY_FILES or kind in _SUBQUERIES:  # a subquery's own plan is searched
            continue
        if kind in _CLOCKS:
            raise _refusal(part.sql(), "is another value in each attempt")
        if kind in _BY_ARRIVAL:
            raise _refusal(part.sql(), "depends on the order in which rows arrive")
        alone = all(child.deterministic() for child in _each(part.children()))
        if alone and not part.deterministic():
            raise _refusal(part.sql(), "is another value in each attempt")


def _refusal(what: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"Which rows a slice holds depends on {what}, which {why}.",
        expected="slices whose rows are the same in every attempt",
        remedy=_REMEDY,
    )


def _is_sorted(node: Any) -> bool:
    """Whether rows are cut off below an order; only nodes that keep the order may stand between."""
    while _kind(node) in ("GlobalLimit", "LocalLimit", "Offset", "Tail", "Project", "SubqueryAlias"):
        node = node.children().apply(0)
    return _kind(node) == "Sort"


def _parts(expression: Any) -> Iterator[Any]:
    yield expression
    for child in _each(expression.children()):
        yield from _parts(child)


def _plans_within(expression: Any) -> Iterator[Any]:
    """The plans of the subqueries in an expression."""
    return (part.plan() for part in _parts(expression) if _kind(part) in _SUBQUERIES)


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _id(named: Any) -> str:
    return str(named.exprId().toString())


def _each(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala collection."""
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()
