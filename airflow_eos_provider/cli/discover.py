"""``eos discover``: propose a cluster file from a running group."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from airflow_eos_provider.cli.common import console
from airflow_eos_provider.connect.cluster import worker_id_of
from airflow_eos_provider.connect.group import describe_group
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.config import KafkaSettings, is_secret
from airflow_eos_provider.rollout.hosts.discovery import LocalWorker, find_local_worker


def discover(
    group_id: Annotated[str, typer.Option("--group-id", "-g", help="The workers' group.id.")],
    bootstrap_servers: Annotated[str, typer.Option("--bootstrap-servers", "-b", help="Kafka brokers, host:port.")],
    client: Annotated[
        list[str] | None,
        typer.Option("--client", help="Further client property NAME=VALUE (librdkafka names); may be repeated."),
    ] = None,
    write: Annotated[Path | None, typer.Option("--write", "-w", help="Write the proposal to this new file.")] = None,
) -> None:
    """Propose a cluster file from the members of a group; workers of this machine are looked up by their port."""
    properties = dict(_split(entry) for entry in client or [])
    group = describe_group(KafkaSettings.of(bootstrap_servers, properties), group_id)
    members = sorted(group.members, key=lambda m: m.worker_id)
    local = {member.worker_id: find_local_worker(member.url) for member in members}
    document: dict[str, Any] = {"bootstrap_servers": bootstrap_servers}
    shown = {name: value for name, value in properties.items() if not is_secret(name)}
    if properties:
        document["client"] = shown
    document["group_id"] = group_id
    document["workers"] = [_entry(member.url, local[member.worker_id]) for member in members]
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=10_000)
    notes = [f"# {note}" for note in _notes(local, set(properties) - set(shown))]
    proposal = "\n".join([*notes, text])
    if write is None:
        typer.echo(proposal, nl=False)
        return
    if write.exists():
        raise ConfigurationError(f"{write} exists already.", remedy="Name a new file; nothing was written.")
    write.write_text(proposal, encoding="utf-8")
    console.print(f"Wrote {write}. Read it, complete it, then: eos status --cluster {write}", soft_wrap=True)


def _split(entry: str) -> tuple[str, str]:
    name, separator, value = entry.partition("=")
    if not separator:
        raise typer.BadParameter(f"--client takes NAME=VALUE, not {name!r}")
    return name, value


def _entry(url: str, found: LocalWorker | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"url": url.rstrip("/"), "host": "process"}
    if found is None:
        return entry
    for name, value in (("config", found.config), ("log", found.log), ("pid_file", found.pid_file)):
        if value is not None:
            entry[name] = str(value)
    entry["start"] = list(found.command)
    if found.cwd is not None:
        entry["cwd"] = str(found.cwd)
    return entry


def _notes(local: dict[str, LocalWorker | None], left_out: set[str]) -> list[str]:
    notes = ["Proposed from the members of the group as they are now; read it before you use it."]
    if left_out:
        notes.append(f"Secrets are not written here; add to client yourself: {', '.join(sorted(left_out))}.")
    for worker_id, found in local.items():
        if found is None:
            notes.append(
                f"{worker_id_of(f'//{worker_id}')} is not on this machine: add config, log, pid_file and start."
            )
            continue
        missing = [n for n in ("config", "log", "pid_file") if getattr(found, n) is None]
        if missing:
            notes.append(f"{worker_id}: could not be found out: {', '.join(missing)}.")
        notes.append(f"{worker_id}: if its start command needs variables of its own, add them as env.")
    return notes
