"""Reads the facts of a cluster that decide its rights, and the ACLs of its brokers. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from airflow_eos_provider.acls.cluster_facts import Seen, SeenConnector
from airflow_eos_provider.acls.judge import Authorizer
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.properties import plain_topics, written
from airflow_eos_provider.connect.rest import ConnectorStatus, ConnectRest
from airflow_eos_provider.connect.topics.config_topic import ClusterState, ConnectorConfigState, read_cluster_state
from airflow_eos_provider.connect.topics.internal_topics import CONFIGS, OFFSETS, OWN_TOPIC, STATUS, read_worker_files
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.kafka.kafka_session import Session

_CALL_SECONDS = 15.0

#: What only a sink's configuration has.
_SINKS_OWN = ("topics", "topics.regex")

#: Settings of the brokers by which their authorizer is known. What they say of the last two they keep to themselves.
_AUTHORIZER, _SUPER_USERS, _WITHOUT_ACL = (
    "authorizer.class.name",
    "super.users",
    "allow.everyone.if.no.acl.found",
)


def look(session: ConnectSession) -> Seen:
    """What a cluster says of itself. Whatever cannot be seen is named in ``problems``.

    :raises ConfigurationError: the name of an internal topic is not known.
    :raises UnreachableError: no broker answers.
    """
    files = read_worker_files(session.cluster)
    topics = {name: files.common(name) for name in (CONFIGS, OFFSETS, STATUS)}
    problems = [f"the file of {worker}: {why}" for worker, why in files.unread.items() if not files.properties]
    state = None
    try:
        state = read_cluster_state(session.kafka, topics[CONFIGS])
    except EosError as error:
        problems.append(f"connectors and their tasks: {error.found}")
    statuses: Mapping[str, ConnectorStatus] = {}
    topics_of: Mapping[str, tuple[str, ...]] = {}
    try:
        statuses = session.ask(ConnectRest.infos)
        topics_of = session.ask(
            lambda rest: _topics(rest, [name for name, one in statuses.items() if one.type != "sink"])
        )
    except EosError as error:
        problems.append(f"into which topics the connectors write: {error.found}")
    connectors = sources(state, statuses, topics_of)
    own = {written(each.config, OWN_TOPIC) for each in connectors} - {""}
    wanted = {*topics.values(), *own, *(topic for each in connectors for topic in each.topics)}
    return Seen(
        group_id=session.cluster.group_id,
        config_topic=topics[CONFIGS],
        offsets_topic=topics[OFFSETS],
        status_topic=topics[STATUS],
        kafka=session.kafka.settings,
        files=tuple(files.properties.values()),
        connectors=connectors,
        existing=existing(session.kafka, wanted),
        brokers=_broker_version(session.kafka),
        problems=tuple(problems),
        are_connectors_known=state is not None,
        is_file_missing=bool(files.unread),
    )


def sources(
    state: ClusterState | None, statuses: Mapping[str, ConnectorStatus], topics_of: Mapping[str, tuple[str, ...]]
) -> tuple[SeenConnector, ...]:
    """The source connectors, by the config topic and by REST."""
    found = []
    known: Mapping[str, ConnectorConfigState] = state.connectors if state is not None else {}
    for name in sorted({*known, *statuses}):
        config = known[name].config if name in known else statuses[name].config
        kind = statuses[name].type if name in statuses else "unknown"
        if kind == "sink" or (kind != "source" and any(config.get(each) for each in _SINKS_OWN)):
            continue
        one = known.get(name)
        tasks = max(one.task_count or 0, one.task_count_record or 0) if one is not None else 0
        found.append(SeenConnector(name, config, tasks, topics_of.get(name) or tuple(sorted(plain_topics(config)))))
    return tuple(found)


def existing(kafka: Session, topics: Collection[str]) -> frozenset[str]:
    """The topics that exist, and the topics that this principal may not describe."""
    with kafka.admin() as admin:
        allowed = admin.allowed(topics, _CALL_SECONDS)
    return frozenset(topic for topic, there in allowed.items() if there is not None)


def read_authorizer(kafka: Session) -> Authorizer:
    """What the brokers say of their authorizer, with all ACLs if they may be read."""
    try:
        with kafka.transactions() as client:
            acls = client.acls()
    except ConfigurationError as error:
        return Authorizer(
            problem=f"{kafka.settings.who} may not read the ACLs (Describe on the cluster): {error.found}"
        )
    if acls is None:
        return Authorizer(is_there=False)
    settings: Mapping[str, str | None] | None = None
    with kafka.admin() as admin, suppress(EosError):
        settings = admin.broker_settings(min(admin.cluster(_CALL_SECONDS).ports), _CALL_SECONDS)
    if settings is None:
        return Authorizer(acls)
    said = settings.get(_WITHOUT_ACL, "false")
    return Authorizer(
        acls,
        kind=settings.get(_AUTHORIZER),
        super_users=_super_users(settings),
        allows_without_acl=None if said is None else said.strip().lower() == "true",
    )


def _super_users(settings: Mapping[str, str | None]) -> frozenset[str] | None:
    """Who needs no ACL; None if the brokers have some and keep it to themselves."""
    said = settings.get(_SUPER_USERS, "")
    return None if said is None else frozenset(each.strip() for each in said.split(";") if each.strip())


def _topics(rest: ConnectRest, names: Collection[str]) -> dict[str, tuple[str, ...]]:
    found = {}
    for name in names:
        with suppress(EosError):  # workers need not track them, and a connector may have been deleted meanwhile
            found[name] = rest.topics(name)
    return found


def _broker_version(kafka: Session) -> tuple[int, int] | None:
    with suppress(EosError), kafka.transactions() as client:
        return client.broker_version()
    return None
