"""The description of a Connect cluster: one mapping, in ``eos.yaml`` or in a ``kafka_connect`` connection's extra."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_eos_provider.connect.cluster.keys import (
    local_path,
    mapping_of,
    only_known,
    read_yaml,
    seconds_of,
    secret_of,
    text_of,
)
from airflow_eos_provider.connect.cluster.placement import OwnCommands, SshConnections
from airflow_eos_provider.connect.cluster.worker import (
    WorkerDescription as WorkerDescription,
    worker_id_of as worker_id_of,
)
from airflow_eos_provider.connect.cluster.worker_entry import Surroundings, defaults_of, refuse_later_kinds, worker_of
from airflow_eos_provider.connect.properties import read
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.settings.java_client import from_java
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.redaction import remember, secrets_of

#: Keys that name the internal topics, with the workers' properties that do so.
TOPIC_KEYS = {
    "config_topic": "config.storage.topic",
    "offsets_topic": "offset.storage.topic",
    "status_topic": "status.storage.topic",
}

_TOP_LEVEL = {
    "bootstrap_servers",
    "kafka_conn_id",
    "client",
    "command_config",
    "group_id",
    "rest",
    "defaults",
    "workers",
    "other_kafka",
    *TOPIC_KEYS,
}
_OTHER_KAFKA = {"bootstrap_servers", "client", "command_config"}
_REST = {
    "username",
    "password",
    "token",
    "ca",
    "verify",
    "client_certificate",
    "client_key",
    "client_key_password",
    "timeout_seconds",
}

#: No request to a worker may take longer, seconds.
_LONGEST_REQUEST_SECONDS = 3_600.0


@dataclass(frozen=True, slots=True)
class RestSettings:
    """How the workers' REST API is called.

    :param ca: file of certificate authorities to trust instead of the system's.
    :param verify: whether certificates are verified; on unless turned off explicitly.
    :param timeout_seconds: limit of one request; Connect's own limit is 90 s.
    """

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None
    verify: bool = True
    client_certificate: Path | None = None
    client_key: Path | None = None
    client_key_password: str | None = field(default=None, repr=False)
    timeout_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class JavaClientFile:
    """A properties file of a Java client, as Kafka's own tools take it for ``--command-config``.

    :param properties: what it says, in librdkafka's names.
    """

    path: Path
    properties: Mapping[str, str] = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> JavaClientFile:
        try:
            return cls(path, from_java(read(path.read_bytes())))
        except OSError as error:
            raise ConfigurationError(
                f"The Java client's properties file {path} cannot be read: {error.strerror}.",
                expected="a file that Kafka's own tools accept as --command-config",
            ) from error

    @property
    def exposed(self) -> str | None:
        return exposed_file(self.path, holds_secrets=bool(secrets_of(self.properties)))


@dataclass(frozen=True, slots=True)
class ConnectCluster:
    """One Connect cluster: where its Kafka is, its group, its workers.

    :param kafka: settings of the Kafka cluster that holds the group and the internal topics.
    :param other_kafka: settings of other Kafka clusters, in which source connectors have their clients.
    :param topics: names of internal topics by the workers' properties, where a config provider supplies these.
    :param java_files: the files of Java clients that settings of ``kafka`` and ``other_kafka`` were read from.
    :param read_elsewhere: reads the properties file of a worker that has a machine of its own; None where none of them
        is to be reached, as from a trigger.
    """

    kafka: KafkaSettings
    group_id: str
    rest: RestSettings
    workers: tuple[WorkerDescription, ...]
    other_kafka: tuple[KafkaSettings, ...] = ()
    topics: Mapping[str, str] = field(default_factory=dict)
    java_files: tuple[JavaClientFile, ...] = ()
    read_elsewhere: Callable[[WorkerDescription], bytes] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_mapping(
        cls, mapping: Mapping[str, Any], *, base: Path | None = None, ssh_connections: SshConnections | None = None
    ) -> ConnectCluster:
        """Check and take over a description.

        :param base: folder that relative paths start from; None where a connection describes the cluster.
        :param ssh_connections: looks an Airflow connection of type ``ssh`` up; None outside of Airflow.
        """
        refuse_later_kinds(mapping, "the cluster description")
        only_known(mapping, _TOP_LEVEL, "the cluster description")
        if mapping.get("kafka_conn_id"):
            raise ConfigurationError(
                "kafka_conn_id names an Airflow connection, which is known in Airflow only.",
                remedy="Write bootstrap_servers (and client) into the cluster file.",
            )
        kafka, of_java = _kafka(mapping, base)
        others, of_others = _other_kafka(mapping, base)
        workers = mapping.get("workers")
        if not isinstance(workers, list) or not workers:
            raise ConfigurationError(
                "The cluster description lists no workers.",
                expected="workers: a list with one entry (url, machine, service, config, log) per worker",
                remedy="Run 'eos discover' against the group to get a proposal.",
            )
        around = Surroundings(defaults_of(mapping), base, ssh_connections)
        described = tuple(worker_of(entry, number, around) for number, entry in enumerate(workers, start=1))
        urls = [worker.worker_id for worker in described]
        for url in urls:
            if urls.count(url) > 1:
                raise ConfigurationError(f"The worker {url} is listed {urls.count(url)} times.")
        return cls(
            kafka=kafka,
            group_id=text_of(mapping, "group_id", required=True),
            rest=_rest(mapping_of(mapping, "rest"), base),
            workers=described,
            other_kafka=others,
            topics={name: topic for key, name in TOPIC_KEYS.items() if (topic := text_of(mapping, key))},
            java_files=(*of_java, *of_others),
        )

    @classmethod
    def of_brokers(cls, kafka: KafkaSettings) -> ConnectCluster:
        """The Kafka cluster alone, where nothing is asked of a group or a worker."""
        return cls(kafka, group_id="", rest=RestSettings(), workers=())

    @classmethod
    def from_file(cls, path: Path, *, ssh_connections: SshConnections | None = None) -> ConnectCluster:
        """Read ``eos.yaml``; relative paths in it start from its own folder."""
        return cls.from_mapping(_content(path), base=path.resolve().parent, ssh_connections=ssh_connections)

    @property
    def holds_secrets(self) -> bool:
        """Whether something in the description must not be read by everybody."""
        elsewhere = {pair for file in self.java_files for pair in file.properties.items()}
        settings: list[Mapping[str, object]] = [
            *(dict(each.properties.items() - elsewhere) for each in (self.kafka, *self.other_kafka)),
            {
                "password": self.rest.password,
                "token": self.rest.token,
                "client_key_password": self.rest.client_key_password,
            },
        ]
        for worker in self.workers:
            settings += [worker.env, _numbered(worker.start)]
            if isinstance(worker.service, OwnCommands):
                settings.append(_numbered((*worker.service.restart, *worker.service.status)))
        return any(secrets_of(each) for each in settings)

    def worker(self, worker_id: str) -> WorkerDescription:
        for worker in self.workers:
            if worker.worker_id == worker_id:
                return worker
        raise ConfigurationError(f"The cluster description has no worker {worker_id}.")


def kafka_of_file(path: Path) -> tuple[KafkaSettings, list[str | None]]:
    """The brokers that a cluster file names; it need not describe a Connect cluster.

    :returns: how to reach them; and warnings about secrets in files that every user of this machine may read.
    """
    content = _content(path)
    only_known(content, _TOP_LEVEL, "the cluster description")
    kafka, of_java = _kafka(content, path.resolve().parent)
    own = dict(kafka.properties.items() - {pair for file in of_java for pair in file.properties.items()})
    exposed = exposed_file(path, holds_secrets=bool(secrets_of(own)))
    return kafka, [exposed, *(each.exposed for each in of_java)]


def _content(path: Path) -> Mapping[str, Any]:
    try:
        content = read_yaml(path.read_bytes(), f"The cluster file {path}")
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"There is no cluster file {path}.",
            remedy="Name one with --cluster, start a lab with 'eos lab up', or let 'eos discover' propose one.",
        ) from error
    except OSError as error:
        raise ConfigurationError(f"The cluster file {path} cannot be read: {error.strerror}.") from error
    if not isinstance(content, dict):
        raise ConfigurationError(f"The cluster file {path} holds no mapping.", expected="bootstrap_servers: … etc.")
    return content


def _numbered(words: Iterable[str]) -> dict[str, object]:
    """Words of a command under names that do not speak of secrets: what is secret is so by its shape."""
    return {str(number): word for number, word in enumerate(words)}


def exposed_file(path: Path, *, holds_secrets: bool) -> str | None:
    """A warning, if every user of this machine may read the secrets in a file, as far as the file's own mode says."""
    try:
        is_open = bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return None
    if not (holds_secrets and is_open):
        return None
    return f"{path} contains secrets, and every user of this machine may read it: chmod 600 {path}"


def other_kafka_of(mapping: Mapping[str, Any]) -> tuple[KafkaSettings, ...]:
    return _other_kafka(mapping, None)[0]


def _other_kafka(
    mapping: Mapping[str, Any], base: Path | None
) -> tuple[tuple[KafkaSettings, ...], tuple[JavaClientFile, ...]]:
    """The settings of the other Kafka clusters, and the files of Java clients that some were read from."""
    entries = mapping.get("other_kafka") or []
    if not isinstance(entries, list):
        raise ConfigurationError("other_kafka is not a list.", expected="[{bootstrap_servers: …, client: {…}}, …]")
    found: list[KafkaSettings] = []
    files: list[JavaClientFile] = []
    for number, entry in enumerate(entries, start=1):
        where = f"other_kafka[{number}]"
        if not isinstance(entry, Mapping):
            raise ConfigurationError(f"{where} is not a mapping.", expected="{bootstrap_servers: …, client: {…}}")
        only_known(entry, _OTHER_KAFKA, where)
        settings, read = _kafka(entry, base, f"{where}.")
        found.append(settings)
        files += read
    return tuple(found), tuple(files)


def _kafka(
    mapping: Mapping[str, Any], base: Path | None, where: str = ""
) -> tuple[KafkaSettings, tuple[JavaClientFile, ...]]:
    """The settings of a Kafka cluster, and the file of a Java client that they were read from, if one is named."""
    file = _command_config(mapping, base, where)
    of_java = file.properties if file else {}
    addresses = of_java.get("bootstrap.servers", "")
    addresses = text_of(mapping, "bootstrap_servers", required=not addresses, where=where) or addresses
    client = {**of_java, **mapping_of(mapping, "client", where=where)}
    return KafkaSettings.of(addresses, client), (file,) if file else ()


def _command_config(mapping: Mapping[str, Any], base: Path | None, where: str = "") -> JavaClientFile | None:
    """The file of a Java client.

    :raises ConfigurationError: a connection names it: whoever edits one could send its login to brokers of their own.
    """
    path = local_path(mapping, "command_config", base, where)
    if path is not None and base is None:
        raise ConfigurationError(
            f"{where}command_config names a file with credentials on this machine, and is not taken from a connection.",
            remedy="Name it in a cluster file on the Airflow workers, and that file as cluster_file.",
        )
    return JavaClientFile.read(path) if path else None


def _rest(mapping: Mapping[str, Any], base: Path | None) -> RestSettings:
    only_known(mapping, _REST, "rest")
    verify = mapping.get("verify", True)
    if not isinstance(verify, bool):
        raise ConfigurationError(f"rest.verify is {verify!r}.", expected="true or false")
    remember(mapping)
    return RestSettings(
        username=text_of(mapping, "username") or None,
        password=secret_of(mapping, "password", where="rest."),
        token=secret_of(mapping, "token", where="rest.") or None,
        ca=local_path(mapping, "ca", base),
        verify=verify,
        client_certificate=local_path(mapping, "client_certificate", base),
        client_key=local_path(mapping, "client_key", base),
        client_key_password=secret_of(mapping, "client_key_password", where="rest."),
        timeout_seconds=seconds_of(mapping, "timeout_seconds", "rest.", _LONGEST_REQUEST_SECONDS) or 30.0,
    )
