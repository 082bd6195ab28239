"""What a worker's file says is read on the machine that the cluster file names, by a real sshd."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from airflow_eos_provider.cli.common import load_cluster
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.topics.internal_topics import CONFIGS, read_worker_files
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.redaction import redact
from airflow_eos_provider.rollout.hosts.choose import host_of
from airflow_eos_provider.rollout.hosts.host import NOT_RUNNING
from tests.sshd import Sshd, make_key, public

PROPERTIES = "group.id=g\nconfig.storage.topic=of-that-machine\nsasl.password=c4n4ry-far-file\n"


def described(folder: Path, sshd: Sshd, known_hosts: Path | None = None) -> ConnectCluster:
    """A cluster file beside which the login's files lie, as the command line reads it."""
    config = folder / "connect.properties"
    config.write_text(PROPERTIES)
    machine = {
        "user": sshd.user,
        "port": sshd.port,
        "key_file": str(sshd.user_key),
        "ssh_config": str(sshd.ssh_config),
        "known_hosts": str(known_hosts or sshd.known_hosts),
        "connect_seconds": 5,
    }
    mapping = {
        "bootstrap_servers": "127.0.0.1:1",
        "group_id": "g",
        "defaults": {"machine": machine, "service": {"systemd": "kafka-connect"}, "config": str(config)},
        "workers": [{"url": f"http://{sshd.address}:8083"}, {"url": f"http://{sshd.address}:8084"}],
    }
    file = folder / "eos.yaml"
    file.write_text(yaml.safe_dump(mapping))
    return load_cluster(file)


def test_the_files_of_another_machine_are_read_there(tmp_path: Path, sshd: Sshd) -> None:
    files = read_worker_files(described(tmp_path, sshd))
    assert files.unread == {}
    assert len(files.properties) == 2
    assert files.common(CONFIGS) == "of-that-machine"
    assert redact("it said c4n4ry-far-file") == "it said ***"


def test_another_host_key_than_the_known_one_is_the_reason_that_nothing_is_read(tmp_path: Path, sshd: Sshd) -> None:
    other = make_key(tmp_path / "other_host_key")
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(f"[{sshd.address}]:{sshd.port} {public(other)}\n")
    files = read_worker_files(described(tmp_path, sshd, known_hosts))
    assert files.properties == {}
    assert all("host key" in why for why in files.unread.values()), files.unread


def test_whoever_does_not_reach_machines_says_so(tmp_path: Path, sshd: Sshd) -> None:
    cluster = ConnectCluster.from_file(described(tmp_path, sshd) and tmp_path / "eos.yaml")
    files = read_worker_files(cluster)
    assert set(files.unread.values()) == {f"its file is on {sshd.address}, which is not checked from here"}


def test_a_worker_of_which_nobody_says_who_owns_it_is_watched_and_not_restarted(tmp_path: Path, sshd: Sshd) -> None:
    described(tmp_path, sshd)
    mapping = yaml.safe_load((tmp_path / "eos.yaml").read_text())
    del mapping["defaults"]["service"]
    worker = ConnectCluster.from_mapping(mapping, base=tmp_path).workers[0]
    host = host_of(worker)
    facts = host.observe()
    assert facts.properties["config.storage.topic"] == "of-that-machine"
    assert (facts.is_running, facts.running.alive, facts.start_token) == (False, None, NOT_RUNNING)
    assert "it has no 'service'" in (facts.problem or "")
    with pytest.raises(ConfigurationError, match="cannot be restarted: it has no 'service'"):
        host.restart()
