"""Looks through the plan of a classic DataFrame, in the driver's JVM, for what the rules refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame

from airflow_eos_provider.interval.spark.plans import slice_rules

_MOMENT_WORD = re.compile(rf"\b({slice_rules.MOMENT_WORDS})\b", re.IGNORECASE)

_MOMENTS = frozenset({"timestamp", "timestamp_ntz", "timestamp_ltz", "date"})

#: Expressions that Spark replaces by others before it evaluates them, a cast among them.
_PARSE_A_MOMENT = frozenset({"ParseToTimestamp", "ParseToDate"})

_KEEPS_ORDER = slice_rules.LIMIT.classes | {"Project", "SubqueryAlias"}

#: An RDD of a list that the driver holds, ``createDataFrame([…])``, as Python makes it; functions of Python's between
#: are trusted like those of a plan. Its list is written by a method whose name begins so.
_LIST_RDDS = frozenset({"MapPartitionsRDD", "PythonRDD", "ParallelCollectionRDD"})
_LIST_IS_READ_BY = "readRDD"

#: Expressions with a plan of their own.
SUBQUERIES = frozenset({"ScalarSubquery", "LateralSubquery", "ListQuery", "Exists"})

#: Nodes that move rows, or order them, and neither make nor drop one.
_MOVES_ONLY = frozenset({"Repartition", "RepartitionByExpression", "RebalancePartitions", "Sort", "ResolvedHint"})

#: Nodes whose output columns are the columns of the same position of each child.
_BY_POSITION = frozenset({"Union", "Intersect", "Except", "UnionLoop"})


def refuse_unstable(frame: DataFrame, key: Sequence[str]) -> None:
    """Check that each attempt would put the same rows into the same slices."""
    slice_rules.require_batch(frame)
    plan: Any = frame._jdf.queryExecution().analyzed()
    wanted = {name.lower() for name in key}
    needed = {_id(column) for column in each(plan.output()) if column.name().lower() in wanted}
    _Search().look(plan, needed)


def refuse_moving(frame: DataFrame) -> None:
    """Check that each evaluation would put the same rows into the same partitions.

    A partition is compared with its bytes, and a shuffle may place a row by any column, so each column counts.
    """
    slice_rules.require_batch(frame)
    plan: Any = frame._jdf.queryExecution().analyzed()
    _Search(by_partitions=True).look(plan, {_id(column) for column in each(plan.output())})


class _Search:
    """A walk through one plan, from the rows that are written to where they come from.

    A common table expression is looked at where it is used, since only there it is known which of its columns matter.

    :param by_partitions: a row's slice is its partition, so what moves rows counts.
    """

    def __init__(self, *, by_partitions: bool = False) -> None:
        self._by_partitions = by_partitions
        self._definitions: dict[str, Any] = {}
        self._looked_at: set[tuple[str, frozenset[str]]] = set()

    def look(self, node: Any, needed: set[str]) -> None:
        """Look at one node and everything below it."""
        kind = kind_of(node)
        if kind == "WithCTE":
            self._definitions |= {str(definition.id()): definition for definition in each(node.cteDefs())}
            self.look(node.plan(), needed)
        elif kind == "CTERelationRef":
            self._look_at_definition(node, needed)
        else:
            _require_rows(node, kind, needed)
            if self._by_partitions and kind in _MOVES_ONLY:
                if _is_by_ranges(node, kind):
                    raise slice_rules.RANGES.refusal()
                needed = {_id(column) for column in each(node.output())}
            below = self._look_at_expressions(node, kind, needed)
            for child in each(node.children()):
                self.look(child, _needed_of(node, kind, child, needed) | below)

    def _look_at_definition(self, reference: Any, needed: set[str]) -> None:
        """Go on where a common table expression is defined, with the columns in the same places there."""
        number = str(reference.cteId())
        definition = self._definitions.get(number)
        if definition is None:
            why = "is defined outside of the plan and cannot be looked at"
            raise slice_rules.refusal("a common table expression", why)
        pairs = zip(each(reference.output()), each(definition.output()), strict=True)
        decides = {_id(own) for outer, own in pairs if _id(outer) in needed}
        if (number, frozenset(decides)) not in self._looked_at:
            self._looked_at.add((number, frozenset(decides)))
            self.look(definition.child(), decides)

    def _look_at_expressions(self, node: Any, kind: str, needed: set[str]) -> set[str]:
        """Look at a node's expressions and their subqueries."""
        below = set(needed)
        ignored = kind in _MOVES_ONLY and not self._by_partitions
        for expression in () if ignored else each(node.expressions()):
            if kind_of(expression) == "Alias" and _id(expression) not in needed:
                continue  # makes a column that decides nothing: its content may differ from attempt to attempt
            _require_stable(expression)
            below |= {_id(reference) for reference in each(expression.references())}
            for subquery in _plans_within(expression):
                self.look(subquery, {_id(column) for column in each(subquery.output())})
        return below


def _needed_of(node: Any, kind: str, child: Any, needed: set[str]) -> set[str]:
    """Ids of the child's columns that are needed ones by their place."""
    if kind not in _BY_POSITION:
        return set()
    pairs = zip(each(node.output()), each(child.output()), strict=True)
    return {_id(own) for outer, own in pairs if kind != "Union" or _id(outer) in needed}


def _require_rows(node: Any, kind: str, needed: set[str]) -> None:
    """Check that a node itself drops and makes the same rows in every attempt."""
    if kind in slice_rules.LIMIT.classes:
        _require_order(node, needed)
    if kind in slice_rules.SAMPLE.classes:
        raise slice_rules.SAMPLE.refusal()
    if kind in slice_rules.DUPLICATES.classes and needed - {_id(column) for column in each(node.keys())}:
        raise slice_rules.DUPLICATES.refusal()
    if kind in slice_rules.RDD.classes and not _is_of_a_list(node.rdd()):
        raise slice_rules.RDD.refusal()


def _require_order(node: Any, needed: set[str]) -> None:
    """Check that a limit's order leaves no ties between rows of different slices.

    Rows that are equal in all columns that decide membership are of one slice, so it does not matter which is kept.
    """
    wanted = {_id(column): column.name() for column in each(node.output()) if _id(column) in needed}
    while kind_of(node) in _KEEPS_ORDER:
        for made in each(node.projectList()) if kind_of(node) == "Project" else ():
            if kind_of(made) == "Alias" and wanted.pop(_id(made), None) is not None:
                wanted |= {_id(column): column.name() for column in each(made.references())}
        node = node.children().apply(0)
    if kind_of(node) != "Sort" or not getattr(node, "global")():
        raise slice_rules.refusal(f"{slice_rules.LIMIT.what} without an order", "keeps whichever rows arrive first")
    ordered = {_id(order.child()) for order in each(node.order()) if kind_of(order.child()) == "AttributeReference"}
    if ties := sorted(name for column, name in wanted.items() if column not in ordered):
        names = ", ".join(ties)
        what, remedy = f"{slice_rules.LIMIT.what} over an order without {names}", f"Order by {names}, too (last)."
        raise slice_rules.refusal(what, slice_rules.LIMIT.why, remedy=remedy)


def _is_by_ranges(node: Any, kind: str) -> bool:
    """Whether a node divides rows by ranges of an order, whose bounds Spark takes from a sample."""
    if kind == "Sort":
        return bool(getattr(node, "global")())
    return kind == "RepartitionByExpression" and any(
        kind_of(e) == "SortOrder" for e in each(node.partitionExpressions())
    )


def _is_of_a_list(rdd: Any) -> bool:
    """Whether an RDD holds a list of the driver's, as ``createDataFrame([…])`` makes it."""
    while True:
        kind, above = kind_of(rdd), list(each(rdd.dependencies()))
        if kind not in _LIST_RDDS or len(above) > 1:
            return False
        if not above:
            return kind == "ParallelCollectionRDD" and str(rdd.getCreationSite()).startswith(_LIST_IS_READ_BY)
        rdd = above[0].rdd()


def _require_stable(expression: Any) -> None:
    for part in parts_of(expression):
        kind = kind_of(part)
        if kind in slice_rules.PINNED_BY_FILES or kind in SUBQUERIES:  # a subquery's own plan is searched
            continue
        if kind in slice_rules.CLOCK.classes or (kind == "Cast" and _is_moment_word(part)):
            raise slice_rules.CLOCK.refusal(part.sql())
        if kind in slice_rules.BY_ARRIVAL.classes:
            raise slice_rules.BY_ARRIVAL.refusal(part.sql())
        if not part.deterministic() and all(child.deterministic() for child in each(part.children())):
            raise slice_rules.CHANCE.refusal(part.sql())


def _is_moment_word(cast: Any) -> bool:
    """Whether a cast makes a moment of a constant such as ``now`` or ``today``."""
    text = cast.child()
    if cast.dataType().simpleString() not in _MOMENTS or not text.dataType().simpleString().startswith("string"):
        return False
    return text.references().isEmpty() and _MOMENT_WORD.search(_constant(text)) is not None


def _constant(expression: Any) -> str:
    """The value of an expression without columns; its SQL where only Spark's optimizer can evaluate it."""
    from py4j.protocol import Py4JError

    try:
        return str(expression.eval(None))
    except Py4JError:
        return str(expression.sql())


def parts_of(expression: Any) -> Iterator[Any]:
    """An expression and all expressions within it."""
    yield expression
    if kind_of(expression) in _PARSE_A_MOMENT:
        yield from parts_of(expression.replacement())
    for child in each(expression.children()):
        yield from parts_of(child)


def _plans_within(expression: Any) -> Iterator[Any]:
    """The plans of the subqueries in an expression."""
    return (part.plan() for part in parts_of(expression) if kind_of(part) in SUBQUERIES)


def kind_of(node: Any) -> str:
    """The name of a node's or an expression's class in Spark."""
    return str(node.getClass().getSimpleName())


def _id(named: Any) -> str:
    return str(named.exprId().toString())


def each(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala collection."""
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()
