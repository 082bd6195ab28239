"""``eos intervals doctor``: check whether driver and executors have what interval runs need."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from airflow_eos_provider.cli.client_options import ClientFileOption, client_properties
from airflow_eos_provider.cli.common import (
    console,
    load_kafka,
    report_line,
    show_answer,
    show_checks,
    timeout_option,
)
from airflow_eos_provider.cli.look import Found
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.interval.spark.executors.needs import NEEDS, PYTHONS, SPARKS, Diagnosis
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

_ANSWERS = {
    Verdict.PASS: "Interval runs have what they need.",
    Verdict.FAIL: "Interval runs would fail.",
    Verdict.INCONCLUSIVE: "eos cannot tell whether interval runs would work.",
}

MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Check every executor of this Spark master (local[2], spark://…, yarn, k8s://…).",
    ),
]
RemoteOption = Annotated[
    str | None,
    typer.Option("--remote", metavar="URL", help="Check every executor of this Spark Connect server (sc://host:port)."),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="Spark property, as for spark-submit. Repeatable."),
]


def doctor(
    cluster: Path | None,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    executors: Annotated[
        int | None,
        typer.Option(
            "--executors",
            min=1,
            metavar="N",
            help="Wait for N executors. Default: spark.executor.instances, or the number that starts within 3 seconds.",
        ),
    ] = None,
    timeout: Annotated[float, timeout_option("Time limit of the check of executors.")] = 60.0,
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-servers",
            "-b",
            metavar="HOST:PORT",
            help="Check that driver and executors reach these brokers.",
        ),
    ] = None,
    client_file: ClientFileOption = None,
) -> Found:
    """Check whether this driver and every executor have what interval runs need. Changes nothing.

    Without --master or --remote, checks this Python only. With one of them, small Spark jobs check the Python and the
    versions of every executor. With --bootstrap-servers or --cluster, also whether the brokers answer there.

    Exit code: 1 if a check failed, 5 if eos could not run one, for example because no executor answered.
    """
    from airflow_eos_provider.interval.spark.executor_survey import diagnose

    if master and remote:
        raise typer.BadParameter("name --master or --remote, not both")
    found = diagnose(
        kafka=_kafka(bootstrap_servers, client_file, cluster),
        master=master,
        remote=remote,
        conf=_properties(conf or ()),
        seconds=timeout,
        executors=executors,
        report=report_line,
    )
    failed = [each.subject for each in found.checks if not each.passed]
    show = partial(_show, found)
    return Found(found.to_dict(), dict.fromkeys(failed), show, found.verdict.exit_code)


def _kafka(bootstrap_servers: str | None, client_file: Path | None, cluster: Path | None) -> KafkaSettings | None:
    """The brokers that are asked; none unless they are named."""
    if bootstrap_servers is not None:
        return KafkaSettings.of(bootstrap_servers, client_properties((), client_file, os.environ))
    if client_file is not None:
        raise typer.BadParameter("--client-file goes with --bootstrap-servers")
    return load_kafka(cluster) if cluster is not None else None


def _properties(given: list[str] | tuple[str, ...]) -> dict[str, str]:
    """Spark properties."""
    properties = {}
    for entry in given:
        name, separator, value = entry.partition("=")
        if not separator or not name:
            raise ConfigurationError(f"--conf {name} has no value.", expected="NAME=VALUE")
        properties[name] = value
    return properties


def _show(found: Diagnosis, wide: bool) -> None:
    _show_supported()
    hosts = {look.place: look.host for look in (found.driver, *found.executors)}
    places = list(dict.fromkeys(each.subject for each in found.checks))
    ordered = sorted(found.checks, key=lambda each: places.index(each.subject))
    checked = [(each.subject, hosts.get(each.subject, ""), each.kind, each) for each in ordered]
    show_checks(("place", "host"), checked, wide=wide)
    if found.master is None:
        console.print("Executors were not checked: pass --master or --remote.")
    passed = sum(each.passed for each in found.checks)
    show_answer(f"{passed} of {counted(len(found.checks), 'check')} passed. {_ANSWERS[found.verdict]}", found.verdict)


def _show_supported() -> None:
    console.print(Text("Supported", "bold"))
    console.print(f"  Python {', '.join(PYTHONS)}; the driver and the executors have the same", soft_wrap=True)
    console.print(f"  Spark {', '.join(SPARKS)}", soft_wrap=True)
    for need in NEEDS:
        who = "driver and executors" if need.executor else "driver"
        console.print(f"  {need.name} {need.bounds}  ({who})", soft_wrap=True)
