"""``eos discover``: propose a cluster file from a running group."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from airflow_eos_provider.cli.client_options import (
    ClientFileOption,
    ClientOption,
    CommandConfigOption,
    client_properties,
)
from airflow_eos_provider.cli.cluster.discover_ssh import SshOptions, is_elsewhere, look_over_ssh, with_defaults
from airflow_eos_provider.cli.common import console, warn
from airflow_eos_provider.connect.cluster.description import JavaClientFile, exposed_file, worker_id_of
from airflow_eos_provider.connect.group import describe_group
from airflow_eos_provider.data_text import visible
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.redaction import is_secret_itself, secrets_of
from airflow_eos_provider.rollout.hosts.address import is_on_this_machine
from airflow_eos_provider.rollout.hosts.discovery.here import look_here, propose_here
from airflow_eos_provider.rollout.hosts.discovery.proposal import ProposedWorker
from airflow_eos_provider.rollout.hosts.machine.machines import machine_of


def discover(
    group_id: Annotated[str, typer.Option("--group-id", "-g", metavar="GROUP", help="The workers' group.id.")],
    bootstrap_servers: Annotated[
        str, typer.Option("--bootstrap-servers", "-b", metavar="HOST:PORT", help="Kafka brokers, separated by commas.")
    ],
    client: ClientOption = None,
    client_file: ClientFileOption = None,
    command_config: CommandConfigOption = None,
    ssh: Annotated[
        bool, typer.Option("--ssh", help="Log in to the machines of workers that are not on this machine.")
    ] = False,
    ssh_user: Annotated[
        str | None,
        typer.Option("--ssh-user", metavar="USER", help="Log in as USER. Default: as the SSH configuration says."),
    ] = None,
    ssh_config: Annotated[
        Path | None,
        typer.Option("--ssh-config", metavar="FILE", help="OpenSSH client configuration. Default: ~/.ssh/config."),
    ] = None,
    sudo: Annotated[
        bool, typer.Option("--sudo", help="Use sudo -n there. Without it, eos may not see everything.")
    ] = False,
    write: Annotated[Path | None, typer.Option("--write", "-w", metavar="FILE", help="Write to this new file.")] = None,
) -> None:
    """Write a cluster file from the members of a group.

    eos finds workers on this machine by their ports. With --ssh it logs in to the other workers' machines and finds
    their process, their unit or supervisor, their file and their log. It changes nothing there and copies no secret.

    Read the file before you use it.
    """
    properties = client_properties(client or (), client_file, os.environ)
    if client_file is not None:
        warn(exposed_file(client_file, holds_secrets=bool(secrets_of(properties))))
    of_java = JavaClientFile.read(command_config) if command_config is not None else None
    warn(of_java.exposed if of_java else None)
    settings = KafkaSettings.of(bootstrap_servers, {**(of_java.properties if of_java else {}), **properties})
    group = describe_group(settings, group_id)
    members = sorted(group.members, key=lambda m: m.worker_id)
    far = [member.url for member in members if ssh and is_elsewhere(member.url)]
    local = _look_here([member.url for member in members if member.url not in far], group_id)
    looked = look_over_ssh(far, group_id, SshOptions(ssh_user, ssh_config, sudo), machine_of)
    pid_files = {
        url: _pid_file(url, write) for url, found in local.items() if write is not None and _lacks_pid_file(found)
    }
    document: dict[str, Any] = {"bootstrap_servers": bootstrap_servers}
    shown = {name: value for name, value in properties.items() if not is_secret_itself(name)}
    if of_java:
        document["command_config"] = str(of_java.path.absolute())
    if properties:
        document["client"] = shown
    document["group_id"] = group_id
    entries = {url: _entry(url, found, pid_files.get(url)) for url, found in local.items()}
    entries |= {url: found.entry for url, found in looked.items()}
    defaults, workers = with_defaults([entries[member.url] for member in members])
    document |= ({"defaults": defaults} if defaults else {}) | {"workers": workers}
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=10_000)
    remarks = [
        *_notes(local, pid_files, set(properties) - set(shown)),
        *(r for f in looked.values() for r in f.remarks),
    ]
    notes = [f"# {visible(remark)}" for remark in remarks]
    proposal = "\n".join([*notes, text])
    if write is None:
        typer.echo(proposal, nl=False)
        return
    _write_new(write, proposal)
    for url, pid_file in pid_files.items():
        _write_new(pid_file, f"{local[url].start_pid}\n")
    then = "eos hosts check" if looked else "eos status"
    console.print(f"Wrote {write}. Read it, complete it, then: {then} --cluster {write}", soft_wrap=True)


def _write_new(path: Path, text: str) -> None:
    """A file that only its owner may read: it tells where everything is, and secrets get written into it later."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError as error:
        raise ConfigurationError(
            f"{path} exists already.", remedy="Name a new file; this one was not changed."
        ) from error
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}.") from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _look_here(urls: Sequence[str], group_id: str) -> dict[str, ProposedWorker]:
    """What is proposed for the workers that are not looked for over SSH."""
    here = [url for url in urls if is_on_this_machine(url)]
    seen = look_here(here) if here else None
    elsewhere = ProposedWorker(remarks=("it is not on this machine ('--ssh' looks on its machine)",))
    return {url: propose_here(url, group_id, seen) if seen and url in here else elsewhere for url in urls}


def _lacks_pid_file(found: ProposedWorker) -> bool:
    return bool(found.start_pid) and "pid_file" not in found.entry


def _pid_file(url: str, write: Path) -> Path:
    """A pid file beside the new cluster file."""
    return write.absolute().with_name(f"{worker_id_of(url).replace(':', '-')}.pid")


def _entry(url: str, found: ProposedWorker, pid_file: Path | None) -> dict[str, Any]:
    return {"url": url.rstrip("/"), **found.entry, **({"pid_file": str(pid_file)} if pid_file else {})}


def _notes(local: Mapping[str, ProposedWorker], pid_files: Mapping[str, Path], left_out: set[str]) -> Iterator[str]:
    yield "Proposed from the current members of the group; read it before you use it."
    if left_out:
        yield f"Secrets are not written here; add to client yourself: {', '.join(sorted(left_out))}, then chmod 600."
    for url, found in local.items():
        worker_id = worker_id_of(url)
        if found.pid is None:
            yield from (f"{worker_id}: {remark}: add config, log, pid_file and start." for remark in found.remarks)
            continue
        yield f"{worker_id}: process {found.pid}, run by {found.owner}."
        yield from (f"{worker_id}: {remark}." for remark in found.remarks)
        if url in pid_files:
            yield (
                f"{worker_id}: no pid file named it, so one is written next to this file; a restart without eos "
                "makes it stale."
            )
        elif _lacks_pid_file(found):
            yield (
                f"{worker_id}: no pid file names it: write {found.start_pid} into a file and name that as pid_file "
                "(--write does both)."
            )
