"""``eos intervals``: show, verify and abandon interval runs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from airflow_eos_provider.cli.common import console, load_kafka, print_over, print_share_read, table
from airflow_eos_provider.cli.completion import complete_pipeline, complete_run
from airflow_eos_provider.cli.exactly_once.intervals_doctor import doctor
from airflow_eos_provider.cli.look import Found, add_look
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.interval import DEFAULT_GROUP_ID, GROUP_HELP, Interval, Run
from airflow_eos_provider.interval.messages import in_words
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.verify import (
    Progress,
    RunStatus,
    Verification,
    all_statuses,
    pipelines,
    status,
    verify_all,
    verify_run,
)
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

#: Of a run with more missing slices only so many are shown, unless -o wide.
_SHOWN_SLICES = 20

intervals_app = typer.Typer(no_args_is_help=True, add_completion=False)

_RUN = "orders@2026-01-01T05:00:00Z/2026-01-02T05:00:00Z"

add_look(
    intervals_app,
    "doctor",
    "eos intervals doctor",
    "eos intervals doctor --master spark://spark-1:7077 -b kafka-1:9092",
    "eos intervals doctor --master yarn --conf spark.yarn.dist.archives=env.tar.gz#env --json",
)(doctor)


def _runs(kafka: KafkaSettings, group: str, names: Iterable[str], *progress: Progress) -> list[RunStatus]:
    """Every run of these pipelines."""
    named = [Pipeline(name=name, group_id=group, kafka=kafka) for name in names]
    return list(chain.from_iterable(all_statuses(named, *progress)))


GroupOption = Annotated[
    str,
    typer.Option(
        "--group",
        "-g",
        metavar="GROUP",
        envvar="EOS_GROUP",
        help=GROUP_HELP,
    ),
]
PipelineOption = Annotated[
    str | None,
    typer.Option(
        "--pipeline", "-p", metavar="PIPELINE", autocompletion=complete_pipeline, help="Name of the pipeline."
    ),
]
RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        autocompletion=complete_run,
        help="PIPELINE@START/END, with #2 for the second revision; or START/END with --pipeline.",
    ),
]


@add_look(intervals_app, "list", "eos intervals list", "eos intervals list --group etl --pipeline orders -o name")
def list_(cluster: Path | None, group: GroupOption = DEFAULT_GROUP_ID, pipeline: PipelineOption = None) -> Found:
    """List the complete and running interval runs. Changes nothing."""
    kafka = load_kafka(cluster)
    names = [pipeline] if pipeline else pipelines(kafka, group)
    found = _runs(kafka, group, names, print_share_read)
    document = {"group_id": group, "pipelines": names, "runs": [run.to_dict() for run in found]}

    def show(wide: bool) -> None:
        if not names:
            console.print(f"The group {group} has no pipelines on this cluster.")
        for name in names:
            _show_runs(name, [run for run in found if run.run.pipeline == name], wide=wide)

    return Found(document, [run.run.name for run in found], show)


@add_look(intervals_app, "show", f"eos intervals show {_RUN}", f"eos intervals show {_RUN} -o wide")
def show(
    cluster: Path | None, run: RunArgument, group: GroupOption = DEFAULT_GROUP_ID, pipeline: PipelineOption = None
) -> Found:
    """Show one run: its plan, its slices and its commits. Changes nothing."""
    wanted = _run(run, pipeline)
    found = status(_pipeline(wanted, group, cluster), wanted)
    if found is None:
        raise ConfigurationError(
            f"Nothing of {wanted.name} is on record in the group {group}.", remedy="See 'eos intervals list'."
        )
    return Found(found.to_dict(), [wanted.name], lambda wide: _show_run(found, wide=wide))


@add_look(
    intervals_app,
    "verify",
    "eos intervals verify --pipeline orders --topic orders",
    f"eos intervals verify {_RUN} --topic orders --header eos-run",
)
def verify(
    cluster: Path | None,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            autocompletion=complete_run,
            help="Verify this run only. Default: all records of the topics.",
        ),
    ] = None,
    group: GroupOption = DEFAULT_GROUP_ID,
    pipeline: PipelineOption = None,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Topic with the records. Repeatable.")
    ] = None,
    header: Annotated[
        str | None,
        typer.Option("--header", metavar="NAME", help="The pipeline's run_header, which marks the records of a run."),
    ] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option(
            "--source",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="File whose lines must be the records' values. Repeatable.",
        ),
    ] = None,
) -> Found:
    """Compare the count and digest of records with the ledger. Changes nothing.

    A run's records are recognised by a header, if its pipeline writes one (run_header). Without RUN, all records of the
    topics are compared with all complete runs of the pipeline, which must be their only writer.

    Exit code: 1 if records are missing, duplicated, altered or unexpected.
    """
    if not topics:
        raise typer.BadParameter("name the topic with --topic")
    if run is None:
        if pipeline is None:
            raise typer.BadParameter("name a run, or a pipeline with --pipeline")
        name = pipeline
        described = Pipeline(name=pipeline, group_id=group, kafka=load_kafka(cluster))
        found = verify_all(described, topics, source=source or (), progress=_progress)
    else:
        wanted = _run(run, pipeline)
        name = wanted.name
        if header is None:
            raise ConfigurationError(
                f"The records of {name} cannot be distinguished from others.",
                expected="--header, the name that the pipeline's run_header has",
                remedy="Write the pipeline with run_header set, or compare all of it: leave out RUN.",
            )
        described = _pipeline(wanted, group, cluster)
        found = verify_run(described, wanted, topics, header, source=source or (), progress=_progress)
    return Found(found.to_dict(), [name], lambda wide: _show_verification(found), 0 if found.holds else 1)


def _run(text: str, pipeline: str | None) -> Run:
    if "@" in text:
        run = Run.parse(text)
        if pipeline is not None and pipeline != run.pipeline:
            raise ConfigurationError(f"The run is of {run.pipeline}, but --pipeline says {pipeline}.")
        return run
    if pipeline is None:
        raise ConfigurationError(
            f"{text!r} does not say which pipeline it is of.", remedy="Write <pipeline>@<start>/<end>, or --pipeline."
        )
    interval, _, revision = text.partition("#")
    return Run(pipeline, Interval.parse(interval), int(revision or 1))


def _pipeline(run: Run, group: str, cluster: Any) -> Pipeline:
    return Pipeline(name=run.pipeline, group_id=group, kafka=load_kafka(cluster))


def _progress(topic: str, passed: int, end: int) -> None:
    print_over(f"{topic}: {passed:,} of {end:,} offsets")


def _show_runs(name: str, found: list[RunStatus], *, wide: bool = False) -> None:
    """A table of runs; their digests only where it may be wider than 80 columns."""
    shown = table(f"Pipeline {name}")
    shown.add_column("interval", no_wrap=True)
    shown.add_column("#", justify="right")
    shown.add_column("state")
    shown.add_column("slices", justify="right")
    shown.add_column("records", justify="right", no_wrap=True)  # a number would be cut, not folded
    if wide:
        shown.add_column("digest")
    for run in found:
        shown.add_row(
            run.run.interval.name,
            str(run.run.revision),
            Text("complete", "green") if run.complete else Text("running", "yellow"),
            str(run.slices) if run.complete else f"{len(run.done)} of {run.slices}",
            f"{run.records:,}",
            *((run.digest or "",) if wide else ()),
        )
    console.print(shown)


def _show_run(found: RunStatus, *, wide: bool = False) -> None:
    """Print a run; of many missing slices the first ones only, unless it may be wide."""
    console.print(f"{found.run.name}: {'complete' if found.complete else 'running'}", style="bold", soft_wrap=True)
    if found.complete:
        console.print(f"  {found.records:,} records in {found.slices} slices, digest {found.digest}", soft_wrap=True)
        for line in found.summary.lines() if wide and found.summary else ():
            console.print(f"  {line}", soft_wrap=True)
        return
    console.print(
        f"  plan {found.plan_hash}, generation {found.generation}, task count record {found.tasks}", soft_wrap=True
    )
    console.print(f"  {len(found.done)} of {found.slices} slices committed, {found.records:,} records")
    if found.missing:
        shown = found.missing if wide else found.missing[:_SHOWN_SLICES]
        numbers = ", ".join(map(str, shown)) + (" …" if len(shown) < len(found.missing) else "")
        console.print(f"  to be written: slice {numbers}", soft_wrap=True)
    for name, value in found.source.items():
        console.print(f"  source {name}: {value}", soft_wrap=True)
    if wide and found.written:
        _show_slices(found)


def _show_slices(found: RunStatus) -> None:
    """A table of the committed slices of a running run."""
    shown = table("Committed slices")
    for name in ("slice", "records", "bytes", "task", "attempt"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("seconds, before the commit")
    for number, record in sorted(found.written.items()):
        own = record.measures
        known = (f"{own.bytes:,}", str(own.task), str(own.attempt), in_words(own.seconds))
        shown.add_row(str(number), f"{record.records:,}", *known)
    console.print(shown)


def _show_verification(found: Verification) -> None:
    console.print(f"{found.what} in {', '.join(found.topics)}", style="bold", soft_wrap=True)
    console.print(f"  expected {found.expected_records:,} records, digest {found.expected_digest}", soft_wrap=True)
    console.print(f"  found    {found.records:,} records, digest {found.digest}", soft_wrap=True)
    if found.source_records is not None:
        agrees = "they are the values" if found.source_agrees else "they are NOT the values"
        console.print(f"  source   {found.source_records:,} lines: {agrees}")
    if found.holds:
        console.print("  every record is there, once.", style="green")
    else:
        console.print("  NOT as written: records are missing, duplicated, altered or unexpected.", style="bold red")
