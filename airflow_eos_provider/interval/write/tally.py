"""What a slice amounts to: the count and digests of its rows, and whether they may be records at all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.messages import SliceFigures
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.record_columns import check_columns
from airflow_eos_provider.interval.topics.timestamps import require_milliseconds
from airflow_eos_provider.interval.write.digest import Digest, place_sums, row_sums
from airflow_eos_provider.kafka.write.record_rows import RecordRows

if TYPE_CHECKING:
    import pyarrow as pa


class Tally:
    """Counts the rows of one slice and sums them up, many at a time.

    Both the write and the later comparison use it, so equal rows have equal figures.
    """

    def __init__(self, pipeline: Pipeline, run: Run) -> None:
        self._topic = pipeline.topic
        self.headers: list[tuple[str, str | bytes | None]] | None = (
            None if pipeline.run_header is None else [(pipeline.run_header, run.name.encode())]
        )
        self._records = 0
        self._digest = Digest()
        self._placed = Digest()
        self._interval = run.interval
        self.bytes = 0
        self.null_keys = 0
        self.topics: set[str] = set()

    def count(self, batch: pa.RecordBatch) -> RecordRows:
        """Count the rows of a batch."""
        check_columns(batch.schema)
        rows = RecordRows.of(batch, self._topic, self.headers)
        if rows.timestamps is not None:
            require_milliseconds(rows.timestamps, self._interval)
        sums = row_sums(rows)
        self._digest.add_sums(sums)
        if rows.partitions is not None or rows.timestamps is not None:
            those, places = place_sums(rows)
            self._placed.add_sums(sums[:, those] + places)
        if "key" in batch.schema.names:
            self.null_keys += batch.column("key").null_count
        self._records += len(rows)
        self.topics.update(rows.topics)
        self.bytes += rows.keys.size + rows.values.size
        return rows

    def take(self, batches: Iterable[pa.RecordBatch]) -> SliceFigures:
        """Count rows that are not to be written."""
        for batch in batches:
            self.count(batch)
        return self.figures

    @property
    def figures(self) -> SliceFigures:
        """Of the rows so far."""
        return SliceFigures(self._records, self._digest.text, self._placed.text)
