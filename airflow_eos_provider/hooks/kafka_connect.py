"""The hook of the ``kafka_connect`` connection: an Airflow connection becomes the description of a Connect cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.sdk import BaseHook
from airflow.sdk.configuration import conf
from airflow.sdk.log import mask_secret

from airflow_eos_provider.connect.cluster.description import TOPIC_KEYS, ConnectCluster, exposed_file, other_kafka_of
from airflow_eos_provider.connect.cluster.other_kafka import addresses_of
from airflow_eos_provider.connect.cluster.placement import OwnCommands, SshConnection, SshConnections, SshLogin
from airflow_eos_provider.connect.cluster.worker import WorkerDescription, worker_id_of
from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.hooks.shown_extra import (
    DEFAULT_FILES_FOLDER,
    FILES_OPTION,
    HOST_COMMANDS_OPTION,
    commands_in_client,
    files_in,
    host_commands_in,
    shown_in_clear,
)
from airflow_eos_provider.hooks.ssh_login import ssh_connection
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.settings.tokens import OUR_METHODS, cloud_method
from airflow_eos_provider.redaction import is_secret_itself, secrets_of

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_eos_provider.connect.rest import ConnectRest
    from airflow_eos_provider.offsets.seen.current_offsets import OffsetsLook
    from airflow_eos_provider.rollout.controller import Controller

logger = logging.getLogger(__name__)

#: Keys of the extra that the form or a user may leave empty, and that hold structures.
_STRUCTURES: dict[str, type] = {
    "client": dict,
    "client_secrets": dict,
    "rest": dict,
    "defaults": dict,
    "workers": list,
    "other_kafka": list,
}

#: What a ``kafka`` connection says about its consumers and producers, which has no meaning for an admin client.
_NOT_FOR_CLIENTS = frozenset(
    {
        "acks",
        "auto.offset.reset",
        "error_cb",
        "group.id",
        "group.instance.id",
        "isolation.level",
        "log_cb",
        "on_commit",
        "stats_cb",
        "throttle_cb",
        "transactional.id",
    }
)
_NOT_FOR_CLIENTS_PREFIXES = ("enable.auto.", "enable.idempotence", "max.poll.", "session.timeout", "heartbeat.interval")


_TOKEN_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"


class KafkaConnectHook(BaseHook):
    """One Kafka Connect cluster, described by a connection of type ``kafka_connect``.

    The extra is the mapping of ``eos.yaml`` (``docs/connect/describe-a-cluster.md``) with more keys: ``cluster_file``,
    the path of such a file; ``kafka_conn_id``, a connection of type ``kafka``, also in an entry of ``other_kafka``; and
    ``client_secrets``, also there, and ``env_secrets`` of a worker, which join ``client`` and ``env`` and are hidden by
    Airflow as a whole. ``conn_id`` of a worker's ``machine``, in the extra or in the file, is a connection of type
    ``ssh``. Host is the REST URL of a worker, with schema and port where they are not in it: without ``workers`` and
    ``cluster_file`` the only worker, otherwise one of them. Login and password are for basic authentication with the
    workers' REST API.

    A connection may not contain everything (``docs/connect/security.md``): nothing secret where Airflow shows it, and
    nothing that this machine would run, write or kill, unless the deployment allows that.

    :param kafka_connect_conn_id: the connection.
    """

    conn_name_attr = "kafka_connect_conn_id"
    default_conn_name = "kafka_connect_default"
    conn_type = "kafka_connect"
    hook_name = "Kafka Connect"

    def __init__(self, kafka_connect_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.kafka_connect_conn_id = kafka_connect_conn_id

    def get_cluster(self, *, logs_in: bool = True) -> ConnectCluster:
        """The cluster that the connection describes. Whatever is secret in it is masked in Airflow's logs first.

        :param logs_in: whether the workers' machines are to be reached. A trigger reaches none, so it does not even
            get to know the connections of type ``ssh`` that the description names.
        :raises ConfigurationError: with the connection's name and what is wrong in it.
        """
        connection = self.get_connection(self.kafka_connect_conn_id)
        try:
            if not logs_in:
                return self._describe(connection, _no_login)
            described = self._describe(connection, cache(self._ssh_connection))
            return replace(described, read_elsewhere=_read_elsewhere)
        except ConfigurationError as error:
            raise ConfigurationError(
                f"Connection {self.kafka_connect_conn_id}: {error.found}",
                expected=error.expected,
                remedy=error.remedy or "Correct the connection (Admin > Connections), or its AIRFLOW_CONN_… variable.",
            ) from error

    def get_conn(self) -> ConnectRest:
        """A REST client of the first worker that answers, Host first; it is to be entered by ``with``.

        :raises UnreachableError: no worker answers; with every worker's reason.
        """
        cluster = self.get_cluster()
        host = worker_id_of(_rest_url(self.get_connection(self.kafka_connect_conn_id)))
        problems = []
        for worker in sorted(cluster.workers, key=lambda each: each.worker_id != host):
            try:
                self._ask_worker(cluster, worker.url)
                return self._rest_client(cluster, worker.url)
            except EosError as error:
                problems.append(error.found)
        raise UnreachableError("No worker answers: " + " ".join(problems), remedy="See the workers' logs.")

    def rest(self, worker: str) -> ConnectRest:
        """A REST client of one worker; it is to be entered by ``with``.

        :param worker: ``host:port``, as Connect names the worker.
        :raises ConfigurationError: the connection describes no such worker.
        """
        cluster = self.get_cluster()
        return self._rest_client(cluster, cluster.worker(worker).url)

    @contextmanager
    def source_offsets(self, *, offsets_topic: str = "") -> Iterator[OffsetsLook]:
        """What reads source offsets and takes backups of them, as ``eos offsets list`` and ``backup`` do.

        Its clients end with the block.

        :param offsets_topic: the workers' ``offset.storage.topic``; empty: as their properties files say.
        :raises ConfigurationError: as :meth:`get_cluster`.
        """
        from airflow_eos_provider.connect.connect_session import ConnectSession
        from airflow_eos_provider.offsets.seen.current_offsets import OffsetsLook

        with ConnectSession(self.get_cluster()) as session:
            yield OffsetsLook(session, offsets_topic)

    @contextmanager
    def rolls(self, **options: Any) -> Iterator[Controller]:
        """What plans and applies rolls, as ``eos plan`` and ``eos apply`` do: its ``plan`` and ``apply``.

        Its clients end with the block.

        :param options: of :class:`~airflow_eos_provider.rollout.controller.Controller`, such as ``reason`` and
            ``report``.
        :raises ConfigurationError: as :meth:`get_cluster`.
        """
        from airflow_eos_provider.rollout.controller import Controller

        with Controller(self.get_cluster(), **options) as controller:
            yield controller

    def status(self) -> dict[str, Any]:
        """Group, workers, connectors, transactions and problems, as ``eos status --json`` prints them.

        :raises ConfigurationError: as :meth:`get_cluster`.
        :raises UnreachableError: the brokers do not answer.
        """
        from airflow_eos_provider.cluster_status import all_findings, to_document
        from airflow_eos_provider.rollout.observe.observer import Observer

        with Observer(self.get_cluster()) as observer:
            seen = observer.observe_settled()
            return to_document(seen, all_findings(seen, observer.session.kafka))

    def test_connection(self) -> tuple[bool, str]:
        """The *Test* button: brokers, group and every worker's REST API, each with its own answer.

        Airflow's API server asks them, so they have to be reachable from there.

        :returns: whether everything answered, and what was found; of each that failed also what to do.
        """
        try:
            cluster = self.get_cluster()
        except EosError as error:
            return False, str(error)
        answers = [
            _answer("Kafka", lambda: _ask_brokers(cluster.kafka)),
            _answer(f"group {cluster.group_id}", lambda: _ask_group(cluster)),
        ]
        for other in cluster.other_kafka:
            answers.append(_answer(f"Kafka at {other.bootstrap_servers}", partial(_ask_brokers, other)))
        for worker in cluster.workers:
            answers.append(_answer(f"worker {worker.worker_id}", partial(self._ask_worker, cluster, worker.url)))
        return all(ok for ok, _ in answers), "; ".join(text for _, text in answers)

    def _describe(self, connection: Connection, ssh_connections: SshConnections) -> ConnectCluster:
        extra = _extra(connection)
        _require_hidden_secrets(extra)
        _refuse_host_commands(host_commands_in(extra))
        _require_allowed_files(files_in(extra))
        for holder in (extra, *(extra.get("other_kafka") or ())):
            _require_allowed_callback({**(holder.get("client") or {}), **(holder.get("client_secrets") or {})})
        extra = self._with_kafka_connections(_joined(extra))
        for holder in (extra, *(extra.get("other_kafka") or ())):
            _require_brokers_of_cloud(holder.get("client") or {}, holder.get("bootstrap_servers"))
        rest = dict(extra.get("rest") or {})
        if connection.login and "username" not in rest:
            rest |= {"username": connection.login, "password": connection.password}
        client = dict(extra.get("client") or {})
        bootstrap_servers = extra.get("bootstrap_servers")
        url = _rest_url(connection)
        if url and not extra.get("cluster_file"):
            extra.setdefault("workers", [{"url": url}])
        mask(
            {
                "rest": rest,
                "client": client,
                "workers": extra.get("workers"),
                "defaults": [extra.get("defaults")],
                "other_kafka": extra.get("other_kafka"),
            }
        )
        cluster_file = extra.pop("cluster_file", None)
        if cluster_file:
            _require_file_alone(extra)
            in_file = ConnectCluster.from_file(Path(str(cluster_file)), ssh_connections=ssh_connections)
            cluster = _from_file(Path(str(cluster_file)), in_file, extra, bootstrap_servers, client, rest)
        else:
            mapping = {**extra, "client": client, "rest": rest}
            cluster = ConnectCluster.from_mapping(mapping, ssh_connections=ssh_connections)
        _require_described(url, cluster)
        return cluster

    def _ssh_connection(self, conn_id: str) -> SshConnection:
        return ssh_connection(self.get_connection(conn_id))

    def _with_kafka_connections(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        """The extra with what its connections of type ``kafka`` say, wherever it names one."""
        joined = self._with_kafka_connection(extra)
        if "other_kafka" in joined:
            joined["other_kafka"] = [self._with_kafka_connection(entry) for entry in joined["other_kafka"]]
        return joined

    def _with_kafka_connection(self, mapping: Mapping[str, Any]) -> dict[str, Any]:
        joined = dict(mapping)
        conn_id = joined.pop("kafka_conn_id", None)
        if not conn_id:
            return joined
        connection = self.get_connection(str(conn_id))
        if connection.conn_type != "kafka":
            raise ConfigurationError(
                f"kafka_conn_id names {conn_id}, a connection of type {connection.conn_type!r}.",
                expected="a connection of type 'kafka' (apache-airflow-providers-apache-kafka)",
            )
        properties = client_properties(connection)
        addresses = properties.pop("bootstrap.servers", None)
        client = {**properties, **(joined.get("client") or {})}
        return {**joined, "client": client, "bootstrap_servers": joined.get("bootstrap_servers") or addresses}

    @staticmethod
    def _rest_client(cluster: ConnectCluster, url: str) -> ConnectRest:
        from airflow_eos_provider.connect.rest import ConnectRest

        return ConnectRest(url, cluster.rest, retry_seconds=0.0)

    def _ask_worker(self, cluster: ConnectCluster, url: str) -> str:
        with self._rest_client(cluster, url) as client:
            return f"Connect {client.root().version}"


def client_properties(connection: Connection) -> dict[str, Any]:
    """The librdkafka properties of a ``kafka`` connection, without those of consumers and producers.

    Tokens come from where Airflow's own Kafka provider gets them: from the function in ``oauth_cb``, or for brokers of
    Amazon MSK and Google's managed Kafka from the libraries of these clouds.
    """
    properties = dict(connection.extra_dejson)
    _refuse_host_commands(commands_in_client(properties))
    _require_allowed_callback(properties)
    kept = {
        name: value
        for name, value in properties.items()
        if name not in _NOT_FOR_CLIENTS and not name.startswith(_NOT_FOR_CLIENTS_PREFIXES)
    }
    _require_brokers_of_cloud(kept, kept.get("bootstrap.servers"))
    return {**kept, **_cloud_tokens(kept)}


def _cloud_tokens(properties: Mapping[str, Any]) -> dict[str, str]:
    """What says that tokens come from a cloud, where the brokers' names do and nothing else is said."""
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms")
    if str(mechanism).upper() != "OAUTHBEARER" or {"oauth_cb", "sasl.oauthbearer.method"} & properties.keys():
        return {}
    method = cloud_method(str(properties.get("bootstrap.servers", "")))
    return {"sasl.oauthbearer.method": method} if method else {}


def _require_allowed_callback(properties: Mapping[str, Any]) -> None:
    """Refuse a function that Airflow's own Kafka provider would not call either."""
    named = properties.get("oauth_cb")
    if named is None:
        return
    option = "[apache_kafka] callback_allowlist"
    allowed = conf.get("apache_kafka", "callback_allowlist", fallback="") or ""
    if named not in [path.strip() for path in allowed.split(",")]:
        raise ConfigurationError(
            f"A connection may not name the function {named} (oauth_cb).",
            expected=f"one of {option}: {allowed or 'none'}",
            remedy=f"Add it to {option}, as for Airflow's own Kafka provider, if you trust its code.",
        )


def _require_brokers_of_cloud(properties: Mapping[str, Any], bootstrap_servers: object) -> None:
    """Refuse to hand a token of this machine's own cloud account to brokers that a connection names at will."""
    method = str(properties.get("sasl.oauthbearer.method", "")).lower()
    if method in OUR_METHODS and cloud_method(str(bootstrap_servers or "")) != method:
        raise ConfigurationError(
            f"sasl.oauthbearer.method={method} would give a token of the Airflow worker's own cloud account to brokers "
            "whose names are not in that cloud's domains.",
            expected="brokers named ….kafka.REGION.amazonaws.com (msk-iam), ….managedkafka.….cloud.goog (google)",
            remedy="Name the brokers by these names; or describe them in a cluster_file on the Airflow workers.",
        )


def _rest_url(connection: Connection) -> str:
    """The REST URL in a connection's host, schema and port; empty if there is no host."""
    host = (connection.host or "").strip().rstrip("/")
    if not host:
        return ""
    url = host if "://" in host else f"{connection.schema or 'http'}://{host}"
    try:
        parts = urlsplit(url)
        if parts.port is None and connection.port:
            parts = parts._replace(netloc=f"{parts.netloc}:{connection.port}")
    except ValueError:
        raise ConfigurationError(
            "Host is not the REST URL of a worker.",
            expected="one URL, such as http://connect-1:8083",
            remedy="Write the brokers into Bootstrap servers, and further workers into Workers or the cluster file.",
        ) from None
    return parts.geturl()


def _require_described(url: str, cluster: ConnectCluster) -> None:
    """Refuse a host that is none of the workers: it would get their login and answer for them."""
    known = [worker.worker_id for worker in cluster.workers]
    if url and worker_id_of(url) not in known:
        raise ConfigurationError(
            f"Host names {worker_id_of(url)}, which is not one of the workers in Workers or the cluster file.",
            expected=f"the REST URL of one of them: {', '.join(known)}",
            remedy="Leave Host empty, or add the worker.",
        )


def _extra(connection: Connection) -> dict[str, Any]:
    """The extra without its empty fields."""
    extra = _filled(connection.extra_dejson)
    for key, kind in _STRUCTURES.items():
        value = extra.get(key)
        if isinstance(value, str):
            raise ConfigurationError(
                f"{key} in the extra is text, which Airflow shows in full to every user who may see connections.",
                expected='an object or a list of the extra itself: {"client": {"security.protocol": "SSL"}}',
                remedy="Write it without quotes around the structure, and change the secrets that were in it.",
            )
        if key in extra and not isinstance(value, kind):
            raise ConfigurationError(f"{key} in the extra is a {type(value).__name__}.", expected=kind.__name__)
    if "other_kafka" in extra:
        extra["other_kafka"] = [_other_kafka(entry, number) for number, entry in enumerate(extra["other_kafka"], 1)]
    return extra


def _filled(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """What a form or a user has not left empty."""
    return {key: value for key, value in mapping.items() if value not in (None, "", {}, [])}


def _other_kafka(entry: Any, number: int) -> dict[str, Any]:
    """An entry of ``other_kafka`` without its empty fields."""
    where = f"other_kafka[{number}]"
    if not isinstance(entry, Mapping):
        raise ConfigurationError(f"{where} is not a mapping.", expected="{bootstrap_servers: …, client: {…}}")
    kept = _filled(entry)
    for key in ("client", "client_secrets"):
        if not isinstance(kept.get(key, {}), Mapping):
            raise ConfigurationError(f"{where}.{key} is not a mapping.", expected="{name: value, …}")
    return kept


def _require_hidden_secrets(extra: Mapping[str, Any]) -> None:
    """Refuse a secret that Airflow's pages and its REST API would show."""
    shown = shown_in_clear(extra, also_hidden=conf.get("core", "sensitive_var_conn_names", fallback="") or "")
    if shown:
        raise ConfigurationError(
            f"Airflow would show the secret in {', '.join(shown)} to every user who may see connections.",
            expected="secrets under names that Airflow hides, as text: a password of digits in quotes",
            remedy="Move client properties from 'client' to 'client_secrets', a worker's variables to its "
            "'env_secrets', or keep the description in a cluster_file; then change these secrets.",
        )


def _refuse_host_commands(found: Collection[str]) -> None:
    """Refuse what makes the right to edit a connection the right to run commands as Airflow's worker."""
    if found and not conf.getboolean("eos", HOST_COMMANDS_OPTION, fallback=False):
        raise ConfigurationError(
            "The extra names commands, files or processes of the Airflow worker's machine, or of a machine it logs "
            f"in to ({', '.join(sorted(found))}): every user who may edit the connection could run any command there.",
            expected="worker entries with url only, or a cluster_file",
            remedy="Write the description into a file on the Airflow workers and name it as cluster_file. To allow it "
            f"in connections all the same: [eos] {HOST_COMMANDS_OPTION} = True "
            f"(AIRFLOW__EOS__{HOST_COMMANDS_OPTION.upper()}).",
        )


def _require_allowed_files(files: Mapping[str, str]) -> None:
    """Refuse a file outside the folders that the deployment allows.

    Otherwise anyone who may edit a connection could read any file of Airflow's, or send it to brokers of their own.
    """
    option = f"[eos] {FILES_OPTION}"
    allowed = conf.get("eos", FILES_OPTION, fallback=DEFAULT_FILES_FOLDER) or ""
    folders = [Path(folder.strip()).resolve() for folder in allowed.split(",") if folder.strip()]
    for key, text in files.items():
        try:
            path = Path(text).expanduser().resolve()
        except (OSError, RuntimeError, ValueError):  # a loop of links, no such user, a NUL
            path = Path()
        if not any(path.is_relative_to(folder) for folder in folders):
            raise ConfigurationError(
                f"{key} names {text}, which is not in a folder that connections may use.",
                expected=f"a file in {allowed or 'no folder'} ({option})",
                remedy=f"Move the file there; or add its folder to {option} (AIRFLOW__EOS__{FILES_OPTION.upper()}), "
                "separated by a comma.",
            )


def _joined(extra: Mapping[str, Any]) -> dict[str, Any]:
    """The extra with its separate secrets where they belong."""
    joined: dict[str, Any] = _joined_pair(dict(extra), "client")
    if "other_kafka" in extra:
        joined["other_kafka"] = [_joined_pair(entry, "client") for entry in extra["other_kafka"]]
    if "workers" in extra:
        joined["workers"] = [_with_variables(entry) for entry in extra["workers"]]
    if "defaults" in extra:
        joined["defaults"] = _with_variables(extra["defaults"])
    return joined


def _with_variables(entry: Any) -> Any:
    """A worker's entry, or the defaults of all, with the secret variables among those of its start command."""
    joined = _joined_pair(entry, "env")
    if isinstance(joined, Mapping) and isinstance(joined.get("service"), Mapping):
        return {**joined, "service": _joined_pair(joined["service"], "env")}
    return joined


def _joined_pair(entry: Any, key: str) -> Any:
    """A mapping whose ``<key>_secrets`` are among those of the key."""
    secret = f"{key}_secrets"
    if not isinstance(entry, Mapping) or not isinstance(entry.get(secret), Mapping):
        return entry
    kept = {name: value for name, value in entry.items() if name != secret}
    return {**kept, key: {**(entry.get(key) or {}), **entry[secret]}}


def _read_elsewhere(worker: WorkerDescription) -> bytes:
    from airflow_eos_provider.rollout.hosts.worker_file import read_properties_file  # brings the SSH client

    return read_properties_file(worker)


def _no_login(_conn_id: str) -> SshConnection:
    return SshConnection("", SshLogin())


def _require_file_alone(extra: Mapping[str, Any]) -> None:
    """Refuse what the file says, too: one of the two would be ignored."""
    clash = sorted(key for key in extra if key in ("command_config", "defaults", "group_id", "workers", *TOPIC_KEYS))
    if clash:
        raise ConfigurationError(
            f"The extra names a cluster_file and also {' and '.join(clash)}.", remedy="Leave one of the two."
        )


def _from_file(
    path: Path,
    cluster: ConnectCluster,
    extra: Mapping[str, Any],
    bootstrap_servers: Any,
    client: Mapping[str, Any],
    rest: Mapping[str, Any],
) -> ConnectCluster:
    """The file describes the cluster; the connection may say otherwise only about addresses and credentials."""
    of_java = [each.exposed for each in cluster.java_files]
    for exposed in (exposed_file(path, holds_secrets=cluster.holds_secrets), *of_java):
        if exposed:
            logger.warning("%s", exposed)
    if bootstrap_servers or client:
        servers = str(bootstrap_servers or cluster.kafka.bootstrap_servers)
        _require_login_stays(cluster.kafka, servers, client)
        cluster = replace(cluster, kafka=KafkaSettings.of(servers, {**cluster.kafka.properties, **client}))
    stated_others = other_kafka_of(extra)
    for in_file in cluster.other_kafka:
        for each in stated_others:
            if addresses_of(each.bootstrap_servers) == addresses_of(in_file.bootstrap_servers):
                _require_login_stays(in_file, each.bootstrap_servers, each.properties)
    cluster = replace(cluster, other_kafka=_joined_settings(stated_others, cluster.other_kafka))
    if rest:
        described = {"group_id": cluster.group_id, "workers": [{"url": worker.url} for worker in cluster.workers]}
        stated = ConnectCluster.from_mapping(
            {**described, "bootstrap_servers": cluster.kafka.bootstrap_servers, "rest": dict(rest)}
        ).rest
        cluster = replace(cluster, rest=replace(cluster.rest, **{name: getattr(stated, name) for name in rest}))
    of_rest = cluster.rest
    mask({"password": of_rest.password, "token": of_rest.token, "client_key_password": of_rest.client_key_password})
    mask([dict(each.properties) for each in (cluster.kafka, *cluster.other_kafka)])
    mask({"workers": [{"env": dict(w.env), **_commands_of(w)} for w in cluster.workers]})
    return cluster


def _commands_of(worker: WorkerDescription) -> dict[str, str]:
    """The words of a worker's commands, in which a secret may be."""
    service = worker.service
    of_service = (*service.restart, *service.status) if isinstance(service, OwnCommands) else ()
    return {str(number): word for number, word in enumerate((*worker.start, *of_service))}


def _require_login_stays(in_file: KafkaSettings, bootstrap_servers: str, client: Mapping[str, Any]) -> None:
    """Refuse to send a file's login to where a connection says."""
    kept = {name: value for name, value in in_file.properties.items() if name not in client}
    logs_in = any(name == "oauth_cb" or (name.startswith("sasl.") and is_secret_itself(name)) for name in kept)
    if not logs_in and kept.get("sasl.oauthbearer.method", "").lower() not in OUR_METHODS:
        return
    others = set(addresses_of(bootstrap_servers) - addresses_of(in_file.bootstrap_servers))
    endpoint = client.get(_TOKEN_ENDPOINT)
    if endpoint and endpoint != in_file.properties.get(_TOKEN_ENDPOINT):
        others.add(str(endpoint))
    if others:
        raise ConfigurationError(
            f"The login in the cluster_file would be sent to {', '.join(sorted(others))}, which the extra names and "
            "the file does not.",
            expected="addresses that the file has, too; or a login of the connection's own (client_secrets)",
            remedy="Write the addresses into the file on the Airflow workers.",
        )


def _joined_settings(
    stated: Collection[KafkaSettings], in_file: Collection[KafkaSettings]
) -> tuple[KafkaSettings, ...]:
    """Other Kafka clusters of a connection, then those of its file.

    What both have with the same addresses is joined. The first one that has all addresses of a connector is used.
    """
    of_file: dict[frozenset[str], KafkaSettings] = {}
    for each in in_file:
        of_file.setdefault(addresses_of(each.bootstrap_servers), each)
    first = []
    for each in stated:
        same = of_file.get(addresses_of(each.bootstrap_servers), each)
        first.append(KafkaSettings.of(each.bootstrap_servers, {**same.properties, **each.properties}))
    return (*first, *in_file)


def mask(value: Any) -> None:
    """Tell Airflow's log masking about every value that is secret, by its name or by its shape."""
    if isinstance(value, Mapping):
        for secret in secrets_of(value):
            mask_secret(secret)
        for inner in value.values():
            if isinstance(inner, list | Mapping):
                mask(inner)
    elif isinstance(value, list):
        for inner in value:
            mask(inner)


def _answer(what: str, ask: Callable[[], str]) -> tuple[bool, str]:
    try:
        return True, f"{what}: {ask()}"
    except EosError as error:
        remedy = f" What to do: {error.remedy.removesuffix('.')}" if error.remedy else ""
        return False, f"{what}: FAILED. {error.found}{remedy}"


def _ask_brokers(kafka: KafkaSettings) -> str:
    from airflow_eos_provider.kafka.kafka_session import Session
    from airflow_eos_provider.kafka.questions import CONNECT_SECONDS

    with Session(kafka) as session, session.admin() as admin:
        brokers = len(admin.cluster(CONNECT_SECONDS, "which brokers it has").ports)
    return f"{brokers} broker{'' if brokers == 1 else 's'}"


def _ask_group(cluster: ConnectCluster) -> str:
    from airflow_eos_provider.connect.group import describe_group

    group = describe_group(cluster.kafka, cluster.group_id)
    return f"{group.state}, {len(group.members)} members"
