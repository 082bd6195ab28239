"""Intervals: every pipeline there is, a calendar of one, and one of its runs with its slices."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.sdk.exceptions import AirflowNotFoundException
from fastapi import APIRouter, Query, Response

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.hooks.pipeline import kafka_settings
from airflow_eos_provider.interval.interval import DEFAULT_GROUP_ID, Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.run_history import PipelineHistory, groups_with_pipelines, read_history
from airflow_eos_provider.interval.topics.ledger import SliceRecord
from airflow_eos_provider.interval.verify import status_among, topics
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.ui.access import visible_to
from airflow_eos_provider.ui.airflow_state import PipelineDags, dags_of
from airflow_eos_provider.ui.answers import (
    KEPT_SLOW_SECONDS,
    NotThereError,
    answer,
    errors_of,
    in_thread,
    refused,
)
from airflow_eos_provider.ui.calendar import Calendar
from airflow_eos_provider.ui.connections import KAFKA_TYPES, known_connections
from airflow_eos_provider.ui.documents import Paging, PagingDep, Table, keep_where, redacted, to_json
from airflow_eos_provider.ui.looks import Looks, Seen

#: A look reads ledger and control topic.
KEPT_SECONDS = 10.0

Name = Annotated[str, Query(max_length=249)]
Moment = Annotated[datetime | None, Query()]


@dataclass(frozen=True, slots=True)
class PipelinesLook:
    """The pipelines of one Kafka cluster and their states."""

    rows: tuple[Mapping[str, Any], ...]


def look_for_pipelines(connection_id: str) -> PipelinesLook:
    """The pipelines of a connection's Kafka cluster, found by topic name, and their states."""
    kafka = _kafka(connection_id)
    rows = list[Mapping[str, Any]]()
    for group, names in groups_with_pipelines(topics(kafka)).items():
        for name in names:
            try:
                past = read_history(Pipeline(name=name, group_id=group, kafka=kafka))
            except ConfigurationError:
                break  # the group is a Connect cluster's, whose connectors have offsets topics of their own
            rows.append({"connection_id": connection_id, "group_id": group, "pipeline": name, **_summary(past)})
    return PipelinesLook(tuple(redacted(rows)))


def routes(looks: Looks) -> APIRouter:
    """The routes of intervals."""
    router = APIRouter()

    @router.get("/api/pipelines")
    async def pipelines(user: GetUserDep, paging: PagingDep, connection_id: str = "") -> Response:
        known = await in_thread(_visible, user)
        at_once = {"first_seconds": 0.0, "newer_seconds": 0.0, "kept_seconds": KEPT_SLOW_SECONDS}
        seen = {
            each: await looks.see((each, "pipelines"), partial(look_for_pipelines, each), **at_once) for each in known
        }
        return Response(await in_thread(_pipelines, seen, paging, connection_id), media_type="application/json")

    @router.get("/api/clusters/{connection_id}/calendar")
    async def calendar(
        connection_id: str,
        user: GetUserDep,
        pipeline: Name,
        group: Name = DEFAULT_GROUP_ID,
        start: Moment = None,
        end: Moment = None,
    ) -> Response:
        seen, dags = await asyncio.gather(
            _see_past(looks, connection_id, group, pipeline), in_thread(dags_of, pipeline, group, user)
        )
        head = {"group_id": group, "pipeline": pipeline, "dag_id": dags.dag_id, "backfills": dags.backfills}
        limits = (_with_zone(start), _with_zone(end))
        return await answer(seen, lambda past: {**head, **calendar_of(past, dags, seen).document(*limits)}, head)

    @router.get("/api/clusters/{connection_id}/interval")
    async def interval(
        connection_id: str,
        user: GetUserDep,
        paging: PagingDep,
        run: Annotated[str, Query(max_length=400)],
        group: Name = DEFAULT_GROUP_ID,
    ) -> Response:
        try:
            wanted = Run.parse(run)
        except ConfigurationError as error:
            return await refused(NotThereError(error.found, expected=error.expected))
        seen, dags = await asyncio.gather(
            _see_past(looks, connection_id, group, wanted.pipeline),
            in_thread(dags_of, wanted.pipeline, group, user),
        )
        return await answer(seen, lambda past: interval_document(past, wanted, dags, paging), {})

    return router


def calendar_of(past: PipelineHistory, dags: PipelineDags, seen: Seen[PipelineHistory]) -> Calendar:
    """The calendar of what was seen."""
    runs = [status.run for status in past.statuses]
    seconds = {run: took for run in runs if (took := past.seconds(run)) is not None}
    began = None if seen.at is None else seen.at - seen.took_seconds
    return Calendar(past.statuses, seconds, dags.runs, dags.due, dags.schedule, began)


def interval_document(past: PipelineHistory, run: Run, dags: PipelineDags, paging: Paging) -> dict[str, Any]:
    """One run as ``eos intervals show --json`` has it, with its slices and attempts as far as the logs have them."""
    try:
        status = status_among(past.statuses, run)
    except ConfigurationError as part:
        raise NotThereError(part.found, remedy=part.remedy) from None
    if status is None:
        raise NotThereError(f"Nothing of {run.name} is on record.", remedy="See the calendar of its pipeline.")
    dag_run = dags.runs.get(run.interval)
    document: dict[str, Any] = redacted(
        {
            **status.to_dict(),
            "began_at_ms": past.began_at_ms(run),
            "completed_at_ms": past.completed_at_ms(run),
            "seconds": past.seconds(run),
            "attempts": [{"generation": each.generation, "at_ms": each.at_ms} for each in past.attempts(run)],
            "plan": (plan := past.plan(run)) and plan.hash,
            "planned_source": plan and dict(plan.source),
            "dag_run": dag_run and dag_run.to_dict(),
        }
    )
    return {**document, **Table.of(_slices(past, run, status.slices or 0)).page(paging)}


def _slices(past: PipelineHistory, run: Run, count: int) -> list[dict[str, Any]]:
    done, tasks, sources = past.slices(run, count), past.task_of(run), past.source_of(run)
    return [
        {
            **_written(done.get(number), tasks.get(number)),
            "slice": number,
            "committed_at_ms": past.slice_at_ms(run, number),
            "source": dict(sources[number]) if number < len(sources) else None,
        }
        for number in range(count)
    ]


def _written(record: SliceRecord | None, planned_task: int | None) -> dict[str, Any]:
    """What the ledger says of a slice. A task that began its first attempt has attempt 0; here that is one attempt."""
    measures = record and record.measures
    return {
        "state": "done" if record else "missing",
        "records": record and record.records,
        "digest": record and record.digest,
        "topics": list(record.topics) if record else [],
        "task": measures.task if measures else planned_task,
        "bytes": measures and measures.bytes,
        "attempts": measures and measures.attempt + 1,
        "seconds": round(sum(measures.seconds.values()), 3) if measures else None,
        "stages": dict(measures.seconds) if measures else {},
    }


def _pipelines(seen: Mapping[str, Seen[PipelinesLook]], paging: Paging, connection_id: str) -> bytes:
    rows = [row for each in seen.values() if each.value is not None for row in each.value.rows]
    errors = [{"connection_id": name, **error} for name, each in seen.items() for error in errors_of(each.problem)]
    document = {
        "looked_at": None,
        "still_looking": [name for name, each in seen.items() if each.is_waiting],
        "errors": errors,
        **Table.of(rows).page(paging, keep_where(connection_id=connection_id)),
    }
    return to_json(document)


def _summary(past: PipelineHistory) -> dict[str, Any]:
    statuses = past.statuses
    return {
        "complete": sum(each.complete for each in statuses),
        "running": sum(not each.complete for each in statuses),
        "revised": sum(each.run.revision > 1 for each in statuses),
        "records": sum(each.records for each in statuses),
        "first": statuses[0].run.interval.name[:20] if statuses else None,
        "last": statuses[-1].run.interval.name[21:] if statuses else None,
    }


async def _see_past(looks: Looks, connection_id: str, group: str, pipeline: str) -> Seen[PipelineHistory]:
    def look() -> PipelineHistory:
        return read_history(Pipeline(name=pipeline, group_id=group, kafka=_kafka(connection_id)))

    return await looks.see((connection_id, "past", group, pipeline), look, kept_seconds=KEPT_SECONDS)


def _kafka(connection_id: str) -> KafkaSettings:
    try:
        return kafka_settings(connection_id)
    except AirflowNotFoundException:
        raise NotThereError(f"There is no connection {connection_id}.", remedy="See Admin > Connections.") from None


def _visible(user: Any) -> list[str]:
    known = known_connections(KAFKA_TYPES)
    return sorted(visible_to(user, [(each.connection_id, each.team) for each in known]))


def _with_zone(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment
