"""What a row's slice, and whether there is the row, must not depend on.

A slice is written once and skipped ever after, so a row that moves to another slice in a later attempt is lost or
duplicated. Content may be recomputed, membership may not: the key columns, traced back to where they are made, and all
that decides which rows there are (filters, joins, limits, samples).

These rules give early and clear errors. What a plan cannot show (a function wrongly marked as deterministic, a random
list, an order with ties, a changing source, ``timestamp 'now'``) a retry finds by comparing its rows with the committed
ones. :mod:`~airflow_eos_provider.interval.spark.plans.classic_plan` applies them to the plan in the driver's JVM,
:mod:`~airflow_eos_provider.interval.spark.plans.connect_plan` to the text of a plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_eos_provider.errors import ConfigurationError

_NATURAL_KEY = (
    "Take the slice from columns that every attempt computes alike (a natural key), or write such values to a table "
    "first and read them from there."
)
_READ_AGAIN = (
    "Write it to a table or to files first and read them from there; or select the rows again by spark.read, without "
    "rdd, checkpoint() and localCheckpoint()."
)


@dataclass(frozen=True, slots=True)
class Rule:
    """What membership must not depend on: why, its classes in Spark, its functions in SQL, its name for a user."""

    why: str
    classes: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    what: str = ""
    remedy: str = _NATURAL_KEY

    def refusal(self, what: str = "", *, hint: str = "") -> ConfigurationError:
        return refusal(what or self.what, self.why, remedy=self.remedy + hint)


def refusal(what: str, why: str, *, remedy: str = _NATURAL_KEY) -> ConfigurationError:
    """The error that a plan is refused with: what the user wrote, and what is wrong with it."""
    return ConfigurationError(
        f"The rows of a slice depend on {what}, which {why}.",
        expected="slices whose rows are the same in every attempt",
        remedy=remedy,
    )


#: Spark knows by itself which expressions are not deterministic. ``input_file_name`` is none of them here, since the
#: files are the same in every attempt.
CHANCE = Rule(
    "is another value in each attempt",
    functions=frozenset(
        {
            *("rand", "randn", "random", "uuid", "randstr", "uniform", "shuffle", "monotonically_increasing_id"),
            *("spark_partition_id", "input_file_block_start", "input_file_block_length"),
            *("reflect", "java_method", "try_reflect"),
        }
    ),
)
PINNED_BY_FILES = frozenset({"InputFileName"})

#: Deterministic in Spark's eyes, since one query sees one value; another attempt is another query.
CLOCK = Rule(
    "is another value in each attempt",
    frozenset({"CurrentTimestamp", "CurrentDate", "CurrentTime", "LocalTimestamp", "Now", "CurrentTimestampLike"}),
    frozenset({"current_timestamp", "now", "current_date", "curdate", "current_time", "localtimestamp"}),
)

#: Text of which Spark makes a moment of today where a constant is cast (SpecialDatetimeValues); not where a column is.
MOMENT_WORDS = "now|today|tomorrow|yesterday"

#: Aggregates that take whichever row comes first.
BY_ARRIVAL = Rule(
    "depends on the order in which rows arrive",
    frozenset({"First", "Last", "AnyValue", "CollectList", "CollectSet", "ListAgg", "HistogramNumeric"}),
    frozenset(
        {
            *("first", "first_value", "last", "last_value", "any_value", "collect_list", "collect_set", "array_agg"),
            *("listagg", "string_agg", "histogram_numeric"),
        }
    ),
)

LIMIT = Rule(
    "keeps whichever of its ties arrive first",
    frozenset({"GlobalLimit", "LocalLimit", "Offset", "Tail"}),
    what="limit (or offset)",
)
SAMPLE = Rule("keeps rows by chance", frozenset({"Sample"}), what="sample")
DUPLICATES = Rule(
    "keeps whichever row arrives first",
    frozenset({"Deduplicate", "DeduplicateWithinWatermark"}),
    what="dropDuplicates over other columns than the key",
)

#: How rows are divided into partitions by a sample of them, which is another one in each evaluation.
RANGES = Rule(
    "divides rows by a sample of them, another one in each attempt",
    what="orderBy or repartitionByRange",
    remedy="Leave the order out (repartition(n, columns), sortWithinPartitions), or leave slices_by='partitions' out.",
)

#: Rows that come from an RDD, whose making no plan tells.
RDD = Rule(
    "hides how its rows were made",
    frozenset({"LogicalRDD", "ExternalRDD"}),
    what="an RDD or a checkpoint",
    remedy=_READ_AGAIN,
)


def require_batch(frame: Any) -> None:
    """Check that a frame is no stream."""
    if frame.isStreaming:
        raise ConfigurationError(
            "The DataFrame is a stream.", expected="a batch", remedy="Read the interval by spark.read, not readStream."
        )
