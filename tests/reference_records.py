"""The generated part of ``docs/reference/formats.md`` about records: the journal and interval runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from datetime import UTC, datetime
from typing import Any

from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.messages import RunSummary, encoded
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.topics import control_topic, ledger
from airflow_eos_provider.interval.topics.pins import Pins, TopicPin
from airflow_eos_provider.journal import records as journal
from tests.reference_text import Docstring, table

#: Key in the journal -> the record under it.
_JOURNAL: dict[str, type[Any]] = {
    journal.LEASE_KEY: journal.Lease,
    f"{journal.ROLLOUT_KEY}<rollout>": journal.RolloutRecord,
    f"{journal.STEP_KEY}<rollout>/<worker>": journal.Step,
    f"{journal.REQUEST_KEY}<rollout>": journal.Request,
    f"{journal.EVENT_KEY}<rollout>/<time>": journal.Event,
    f"{journal.CHANGE_KEY}<change>": journal.ChangeRecord,
}

#: Of a record read, not of the record itself.
_NOT_STORED = ("appended_at_ms", "extra")


def page() -> Iterator[str]:
    """The written part of the page."""
    yield f"\n## The journal\n\nTopic `eos-rollout-<group>`, compacted; JSON, schema {journal.SCHEMA}.\n"
    for key, record in _JOURNAL.items():
        described = Docstring.of(record)
        yield f"\n### `{key}`\n\n{described.summary}\n"
        stored = [field for field in fields(record) if field.name not in _NOT_STORED]
        rows = ((f"`{each.name}`", _default(each), described.parameters.get(each.name, "")) for each in stored)
        yield from table("field | default | meaning", rows)
    yield "\n## Interval runs\n\nThe records of one run, as they are made for an interval of two slices in two tasks.\n"
    for title, made in _runs().items():
        yield f"\n### {title}\n"
        for record in made:
            value = "(a tombstone)" if record.value is None else record.value.decode()
            yield f"\n```text\n{record.key.decode()}\n{value}\n```\n"


def _default(field: Field[Any]) -> str:
    if field.default_factory is not MISSING or field.default is MISSING or field.default in ("", None):
        return ""
    return f"`{field.default!r}`"


def _runs() -> dict[str, list[control_topic.Outgoing]]:
    day = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
    run = Run("orders", day)
    pins = Pins(TopicPin("eos-intervals-orders-offsets", "…"), TopicPin("orders", "…"))
    plan = RunPlan(run, [{"hash": 0}, {"hash": 1}], {"kind": "dataframe"})
    digest = "00000000000000000000000000000abc"
    measures = ledger.SliceMeasures(110_000, task=0, attempt=0, seconds={"read": 0.25, "produce": 0.5, "flush": 0.125})
    moved = RunSummary(
        2, 220_000, (500,) * 3, (110_000,) * 3, attempts_fenced=0, seconds={"produce": 1.0, "fence": 0.125}
    )
    return {
        "The plan, in the control topic": [control_topic.plan_record(plan, pins)],
        "A generation, in the control topic": control_topic.generation_records(run, [[0], [1]]),
        "The task count record, in the control topic": [control_topic.task_count_record(run, 2)],
        "The pipeline's ledger, in the control topic": [control_topic.pipeline_record("orders", pins.ledger)],
        "A slice, in the ledger": [
            ledger.slice_record(run, 0, ledger.SliceRecord(plan.hash, 500, digest, measures=measures))
        ],
        "The group and control topic that a ledger belongs to, in the ledger": [
            ledger.claim_record("orders", ledger.Claim("eos-intervals", TopicPin("eos-intervals-configs", "…")), "…")
        ],
        "The whole interval, in the ledger": [
            ledger.complete_record(ledger.CompleteRecord(run, 1000, digest, 2, pins, encoded(moved)))
        ],
    }
