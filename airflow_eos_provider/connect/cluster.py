"""The description of a Connect cluster: one mapping, in ``eos.yaml`` or in a ``kafka_connect`` connection's extra."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from airflow_eos_provider.connect.placement import MachineDescription, ServiceDescription
from airflow_eos_provider.connect.properties import parse
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.config import KafkaSettings
from airflow_eos_provider.kafka.java_client import from_java
from airflow_eos_provider.redaction import remember, secrets_of

_TOP_LEVEL = {
    "bootstrap_servers",
    "kafka_conn_id",
    "client",
    "command_config",
    "group_id",
    "rest",
    "workers",
    "other_kafka",
}
_OTHER_KAFKA = {"bootstrap_servers", "client", "command_config"}
_WORKER = {"url", "host", "config", "log", "pid_file", "start", "cwd", "env"}
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
HOST_KINDS = ("process",)


@dataclass(frozen=True, slots=True)
class RestSettings:
    """How the workers' REST API is called.

    :param username: for basic authentication, together with ``password``.
    :param token: for bearer authentication.
    :param ca: file of certificate authorities to trust instead of the system's.
    :param verify: whether certificates are verified; on unless turned off explicitly.
    :param client_certificate: file for mutual TLS, together with ``client_key``.
    :param client_key_password: of an encrypted ``client_key``.
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
class WorkerDescription:
    """One worker, as its owner describes it.

    :param url: REST address, ``http(s)://host:port``.
    :param host: kind of host, one of :data:`HOST_KINDS`.
    :param config: the worker's properties file, on its machine.
    :param log: the file with the worker's log output, on its machine; None also where systemd's
        journal is the log.
    :param pid_file: the file with the worker's process id.
    :param start: command that starts the worker.
    :param cwd: folder in which ``start`` runs.
    :param env: variables for ``start``; values are never shown.
    :param machine: how its machine is reached; None for this one.
    :param service: who owns its process; None for nobody: ``start`` starts it.
    """

    url: str
    host: str = "process"
    config: Path | None = None
    log: Path | None = None
    pid_file: Path | None = None
    start: tuple[str, ...] = ()
    cwd: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    machine: MachineDescription | None = None
    service: ServiceDescription | None = None

    @property
    def worker_id(self) -> str:
        """``host:port``, the name that Connect itself gives a worker in its statuses."""
        return worker_id_of(self.url)

    @property
    def is_url_only(self) -> bool:
        """Whether nothing is described but its address, as of a worker on another machine."""
        return not any((self.config, self.log, self.pid_file, self.start))


@dataclass(frozen=True, slots=True)
class JavaClientFile:
    """A properties file of a Java client, as Kafka's own tools take it for ``--command-config``.

    :param path: the file.
    :param properties: what it says, in librdkafka's names.
    """

    path: Path
    properties: Mapping[str, str] = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> JavaClientFile:
        """Read it.

        :raises ConfigurationError: it cannot be read, or has a security setting that cannot be kept.
        """
        try:
            return cls(path, from_java(parse(path.read_bytes())))
        except OSError as error:
            raise ConfigurationError(
                f"The Java client's properties file {path} cannot be read: {error.strerror}.",
                expected="a file as Kafka's own tools take it for --command-config",
            ) from error

    @property
    def exposed(self) -> str | None:
        """A warning, if every user of this machine may read the secrets in it."""
        return exposed_file(self.path, holds_secrets=bool(secrets_of(self.properties)))


@dataclass(frozen=True, slots=True)
class ConnectCluster:
    """One Connect cluster: where its Kafka is, its group, its workers.

    :param kafka: settings of the Kafka cluster that holds the group and the internal topics.
    :param group_id: the workers' ``group.id``.
    :param rest: settings for the workers' REST API.
    :param workers: the workers that are known, in the order in which they are written down.
    :param other_kafka: settings of other Kafka clusters, in which source connectors have their clients.
    :param java_files: the files of Java clients that settings of ``kafka`` and ``other_kafka`` were read from.
    """

    kafka: KafkaSettings
    group_id: str
    rest: RestSettings
    workers: tuple[WorkerDescription, ...]
    other_kafka: tuple[KafkaSettings, ...] = ()
    java_files: tuple[JavaClientFile, ...] = ()

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, base: Path | None = None) -> ConnectCluster:
        """Check and take over a description.

        :param mapping: see ``docs/cluster-file.md``.
        :param base: folder that relative paths start from.
        :raises ConfigurationError: with the name of the key that is missing, unknown or of the wrong kind.
        """
        _only_known(mapping, _TOP_LEVEL, "the cluster description")
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
                expected="workers: a list with one entry (url, config, log, pid_file, start) per worker",
                remedy="Run 'eos discover' against the group to get a proposal.",
            )
        described = tuple(_worker(entry, number, base) for number, entry in enumerate(workers, start=1))
        urls = [worker.worker_id for worker in described]
        for url in urls:
            if urls.count(url) > 1:
                raise ConfigurationError(f"The worker {url} is listed {urls.count(url)} times.")
        return cls(
            kafka=kafka,
            group_id=_text(mapping, "group_id", required=True),
            rest=_rest(_mapping(mapping, "rest"), base),
            workers=described,
            other_kafka=others,
            java_files=(*of_java, *of_others),
        )

    @classmethod
    def from_file(cls, path: Path) -> ConnectCluster:
        """Read ``eos.yaml``; relative paths in it start from its own folder.

        :raises ConfigurationError: the file is missing, is not YAML, or describes no cluster.
        """
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ConfigurationError(
                f"There is no cluster file {path}.",
                remedy="Name one with --cluster, start a lab with 'eos lab up', or let 'eos discover' propose one.",
            ) from error
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"The cluster file {path} cannot be read: {error}.") from error
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f" at line {mark.line + 1}" if mark is not None else ""
            raise ConfigurationError(f"The cluster file {path} is not YAML{where}.") from error
        if not isinstance(content, dict):
            raise ConfigurationError(f"The cluster file {path} holds no mapping.", expected="bootstrap_servers: … etc.")
        return cls.from_mapping(content, base=path.resolve().parent)

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
            settings += [worker.env, {str(number): part for number, part in enumerate(worker.start)}]
        return any(secrets_of(each) for each in settings)

    def worker(self, worker_id: str) -> WorkerDescription:
        """The worker ``host:port``.

        :raises ConfigurationError: no such worker is described.
        """
        for worker in self.workers:
            if worker.worker_id == worker_id:
                return worker
        raise ConfigurationError(f"The cluster description has no worker {worker_id}.")


def exposed_file(path: Path, *, holds_secrets: bool) -> str | None:
    """A warning, if every user of this machine may read the secrets in a file, as far as the file's own mode says."""
    try:
        is_open = bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return None
    if not (holds_secrets and is_open):
        return None
    return f"{path} holds secrets, and every user of this machine may read it: chmod 600 {path}"


def worker_id_of(url: str) -> str:
    """``http://host:8083/`` -> ``host:8083``."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:  # an unclosed bracket: whoever may join the group names itself as it likes
        return url.partition("//")[2].partition("/")[0].rpartition("@")[2]


def _only_known(mapping: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(str(key) for key in mapping if key not in known)
    if unknown:
        raise ConfigurationError(
            f"Unknown key{'s' if len(unknown) > 1 else ''} {', '.join(unknown)} in {where}.",
            expected=f"keys among {', '.join(sorted(known))}",
        )


def _mapping(mapping: Mapping[str, Any], key: str, *, where: str = "") -> Mapping[str, Any]:
    value = mapping.get(key) or {}
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{where}{key} is not a mapping.", expected=f"{key}: {{name: value, …}}")
    return value


def _text(mapping: Mapping[str, Any], key: str, *, required: bool = False, where: str = "") -> str:
    value = mapping.get(key)
    if value is None or str(value).strip() == "":
        if required:
            raise ConfigurationError(f"{where}{key} is missing.")
        return ""
    if isinstance(value, (list, dict)):
        raise ConfigurationError(f"{where}{key} is a {type(value).__name__}.", expected="text")
    return str(value).strip()


def other_kafka_of(mapping: Mapping[str, Any]) -> tuple[KafkaSettings, ...]:
    """The settings of the other Kafka clusters in a description.

    :raises ConfigurationError: with the name of the key that is missing, unknown or of the wrong kind.
    """
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
        _only_known(entry, _OTHER_KAFKA, where)
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
    addresses = _text(mapping, "bootstrap_servers", required=not addresses, where=where) or addresses
    client = {**of_java, **_mapping(mapping, "client", where=where)}
    return KafkaSettings.of(addresses, client), (file,) if file else ()


def _path(mapping: Mapping[str, Any], key: str, base: Path | None, where: str = "") -> Path | None:
    text = _text(mapping, key, where=where)
    if not text:
        return None
    path = Path(text).expanduser()
    return path if path.is_absolute() or base is None else base / path


def _command_config(mapping: Mapping[str, Any], base: Path | None, where: str = "") -> JavaClientFile | None:
    """The file of a Java client.

    :raises ConfigurationError: a connection names it: whoever edits one could send its login to brokers of their own.
    """
    path = _path(mapping, "command_config", base, where)
    if path is not None and base is None:
        raise ConfigurationError(
            f"{where}command_config names a file with credentials on this machine, and is not taken from a connection.",
            remedy="Name it in a cluster file on the Airflow workers, and that file as cluster_file.",
        )
    return JavaClientFile.read(path) if path else None


def _rest(mapping: Mapping[str, Any], base: Path | None) -> RestSettings:
    _only_known(mapping, _REST, "rest")
    verify = mapping.get("verify", True)
    if not isinstance(verify, bool):
        raise ConfigurationError(f"rest.verify is {verify!r}.", expected="true or false")
    try:
        timeout = float(mapping.get("timeout_seconds", 30.0))
    except (TypeError, ValueError) as error:
        raise ConfigurationError("rest.timeout_seconds is not a number.") from error
    remember(mapping)
    return RestSettings(
        username=_text(mapping, "username") or None,
        password=_text(mapping, "password") or None,
        token=_text(mapping, "token") or None,
        ca=_path(mapping, "ca", base),
        verify=verify,
        client_certificate=_path(mapping, "client_certificate", base),
        client_key=_path(mapping, "client_key", base),
        client_key_password=_text(mapping, "client_key_password") or None,
        timeout_seconds=timeout,
    )


def _worker(entry: Any, number: int, base: Path | None) -> WorkerDescription:
    where = f"workers[{number}]."
    if not isinstance(entry, Mapping):
        raise ConfigurationError(f"workers[{number}] is not a mapping.", expected="{url: …, config: …, …}")
    _only_known(entry, _WORKER, f"workers[{number}]")
    url = _text(entry, "url", required=True, where=where)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        shown = parts.netloc.rpartition("@")[2] or "no host"
        raise ConfigurationError(
            f"{where}url does not name a REST address ({shown}).",
            expected="http://host:port or https://host:port, without user or password",
        )
    host = _text(entry, "host") or "process"
    if host not in HOST_KINDS:
        raise ConfigurationError(f"{where}host is {host!r}.", expected=f"one of {', '.join(HOST_KINDS)}")
    start = entry.get("start") or []
    if not isinstance(start, list) or not all(isinstance(part, (str, int, float)) for part in start):
        raise ConfigurationError(f"{where}start is not a list of words.", expected='["java", "-cp", …]')
    env = entry.get("env") or {}
    if not isinstance(env, Mapping):
        raise ConfigurationError(f"{where}env is not a mapping.")
    remember(env)
    remember({str(number): part for number, part in enumerate(start)})  # a start command may hold -D…password=…
    return WorkerDescription(
        url=url.rstrip("/"),
        host=host,
        config=_path(entry, "config", base, where),
        log=_path(entry, "log", base, where),
        pid_file=_path(entry, "pid_file", base, where),
        start=tuple(str(part) for part in start),
        cwd=_path(entry, "cwd", base, where),
        env={str(name): str(value) for name, value in env.items()},
    )
