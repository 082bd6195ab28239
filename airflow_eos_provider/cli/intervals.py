"""``eos intervals``: what interval runs have written, and how they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from airflow_eos_provider.cli.common import (
    ClusterOption,
    JsonOption,
    Output,
    OutputOption,
    console,
    load_cluster,
    print_document,
    print_json,
    print_over,
    report_line,
    table,
    width_for,
)
from airflow_eos_provider.cli.examples import examples
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.verify import (
    RunStatus,
    Verification,
    pipelines,
    status,
    statuses,
    verify_all,
    verify_run,
)

#: The group that pipelines belong to when none is named, as in the Airflow layer.
DEFAULT_GROUP_ID = "eos-intervals"

intervals_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Interval runs: what they wrote into Kafka exactly once.",
)

_RUN = "orders@2026-01-01T05:00:00Z/2026-01-02T05:00:00Z"
_EXAMPLES = {
    "list": examples("eos intervals list", "eos intervals list --group etl --pipeline orders -o name"),
    "show": examples(f"eos intervals show {_RUN}"),
    "verify": examples(
        "eos intervals verify --pipeline orders --topic orders",
        f"eos intervals verify {_RUN} --topic orders --header eos-run",
    ),
    "abandon": examples(f"eos intervals abandon {_RUN}"),
}

GroupOption = Annotated[
    str, typer.Option("--group", "-g", envvar="EOS_GROUP", help="Group of the pipelines; never a Connect cluster's.")
]
PipelineOption = Annotated[str | None, typer.Option("--pipeline", "-p", help="Name of the pipeline.")]
RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="<pipeline>@<start>/<end>, with #2 and so on for a revision; or <start>/<end> with --pipeline.",
    ),
]


@intervals_app.command(
    "list", epilog=examples("eos intervals list", "eos intervals list --group etl --pipeline orders -o name")
)
def list_(
    cluster: ClusterOption = None,
    group: GroupOption = DEFAULT_GROUP_ID,
    pipeline: PipelineOption = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every run that is complete or under way. Changes nothing."""
    kafka = load_cluster(cluster).kafka
    names = [pipeline] if pipeline else pipelines(kafka, group)
    found = [run for name in names for run in statuses(Pipeline(name=name, group_id=group, kafka=kafka))]
    document = {"group_id": group, "pipelines": names, "runs": [run.to_dict() for run in found]}
    if print_document(document, [run.run.name for run in found], output, as_json=as_json):
        return
    if not names:
        console.print(f"The group {group} has no pipelines on this cluster.")
        return
    for name in names:
        with width_for(output):
            _show_runs(name, [run for run in found if run.run.pipeline == name], wide=output is Output.WIDE)


@intervals_app.command("show", epilog=_EXAMPLES["show"])
def show(
    run: RunArgument,
    cluster: ClusterOption = None,
    group: GroupOption = DEFAULT_GROUP_ID,
    pipeline: PipelineOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one run: its plan, its slices, what is committed. Changes nothing."""
    wanted = _run(run, pipeline)
    found = status(_pipeline(wanted, group, cluster), wanted)
    if found is None:
        raise ConfigurationError(
            f"Nothing of {wanted.name} is on record in the group {group}.", remedy="See 'eos intervals list'."
        )
    if as_json:
        print_json(found.to_dict())
        return
    _show_run(found)


@intervals_app.command(
    "verify",
    epilog=examples(
        "eos intervals verify --pipeline orders --topic orders",
        "eos intervals verify orders@2026-01-01T05:00:00Z/2026-01-02T05:00:00Z --topic orders --header eos-run",
    ),
)
def verify(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="One run; without it, all of a topic.")] = None,
    cluster: ClusterOption = None,
    group: GroupOption = DEFAULT_GROUP_ID,
    pipeline: PipelineOption = None,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="Where the records are; once for each topic.")
    ] = None,
    header: Annotated[
        str | None,
        typer.Option("--header", help="The pipeline's run_header, by which the records of one run are recognised."),
    ] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option("--source", exists=True, dir_okay=False, help="A file whose lines are the records' values."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Drain records, and compare their count and digest with what the ledger says. Changes nothing.

    One run's records are recognised by a header, if its pipeline writes one (run_header). Without it all records of the
    topics are compared with all complete runs of the pipeline, which has to be their only writer.
    """
    if not topics:
        raise typer.BadParameter("name the topic with --topic")
    if run is None:
        if pipeline is None:
            raise typer.BadParameter("name a run, or a pipeline with --pipeline")
        described = Pipeline(name=pipeline, group_id=group, kafka=load_cluster(cluster).kafka)
        found = verify_all(described, topics, source=source or (), progress=_progress)
    else:
        wanted = _run(run, pipeline)
        if header is None:
            raise ConfigurationError(
                f"The records of {wanted.name} cannot be distinguished from others.",
                expected="--header, the name that the pipeline's run_header has",
                remedy="Write the pipeline with run_header set, or compare all of it: leave out RUN.",
            )
        found = verify_run(
            _pipeline(wanted, group, cluster), wanted, topics, header, source=source or (), progress=_progress
        )
    if as_json:
        print_json(found.to_dict())
    else:
        _show_verification(found)
    if not found.holds:
        raise typer.Exit(1)


@intervals_app.command(
    "abandon", epilog=examples("eos intervals abandon orders@2026-01-01T05:00:00Z/2026-01-02T05:00:00Z")
)
def abandon(
    run: RunArgument,
    cluster: ClusterOption = None,
    group: GroupOption = DEFAULT_GROUP_ID,
    pipeline: PipelineOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only say what would be done.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Give up a run of which nothing is committed, so that its interval is free for another schedule.

    Fences whoever still works on it. Refused as soon as one slice is committed: its records cannot be unwritten.
    """
    from airflow_eos_provider.interval.protocol.coordinator import Coordinator

    wanted = _run(run, pipeline)
    described = _pipeline(wanted, group, cluster)
    found = status(described, wanted)
    if found is None:
        raise ConfigurationError(
            f"Nothing of {wanted.name} is on record in the group {group}.", remedy="See 'eos intervals list'."
        )
    if yes:
        with Coordinator(described, wanted, report=report_line) as coordinator:
            coordinator.abandon()
    if as_json:
        print_json({"run": wanted.name, "abandoned": yes, "before": found.to_dict()})
    elif yes:
        console.print(f"{wanted.name} is abandoned; nothing of it was written.")
    else:
        possible = "can be abandoned" if not found.complete and not found.done else "cannot be abandoned"
        _show_run(found)
        console.print(f"It {possible}. Nothing was changed." + (" To do it: --yes" if "cannot" not in possible else ""))


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
    return Pipeline(name=run.pipeline, group_id=group, kafka=load_cluster(cluster).kafka)


def _progress(topic: str, passed: int, end: int) -> None:
    print_over(f"{topic}: {passed:,} of {end:,} offsets")


def _show_runs(name: str, found: list[RunStatus], *, wide: bool = False) -> None:
    """A table of runs; their digests only where it may be wider than 80 columns."""
    shown = table(f"Pipeline {name}")
    shown.add_column("interval", no_wrap=True)
    for column in ("#", "state", "slices", "records", *(("digest",) if wide else ())):
        shown.add_column(column, justify="left" if column in ("state", "digest") else "right")
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


def _show_run(found: RunStatus) -> None:
    console.print(f"{found.run.name}: {'complete' if found.complete else 'running'}", style="bold")
    if found.complete:
        console.print(f"  {found.records:,} records in {found.slices} slices, digest {found.digest}")
        return
    console.print(f"  plan {found.plan_hash}, generation {found.generation}, task count record {found.tasks}")
    console.print(f"  {len(found.done)} of {found.slices} slices committed, {found.records:,} records")
    if found.missing:
        numbers = ", ".join(map(str, found.missing[:20])) + (" …" if len(found.missing) > 20 else "")
        console.print(f"  to be written: slice {numbers}")
    for name, value in found.source.items():
        console.print(f"  source {name}: {value}")


def _show_verification(found: Verification) -> None:
    console.print(f"{found.what} in {', '.join(found.topics)}", style="bold")
    console.print(f"  expected {found.expected_records:,} records, digest {found.expected_digest}")
    console.print(f"  found    {found.records:,} records, digest {found.digest}")
    if found.source_records is not None:
        agrees = "they are the values" if found.source_agrees else "they are NOT the values"
        console.print(f"  source   {found.source_records:,} lines: {agrees}")
    if found.holds:
        console.print("  every record is there, once.", style="green")
    else:
        console.print(
            "  NOT what was written: records are missing, duplicated, altered or unexpected.", style="bold red"
        )
