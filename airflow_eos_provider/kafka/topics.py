"""Creates, describes and configures topics, for all of the package.

A broker may hear of a new topic later than its neighbours, so a topic that one broker does not know is not yet absent:
:meth:`Topics.find` and :meth:`Topics.settings_of` ask for a while, and :meth:`Topics.create` returns when the topic is
known.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence

from airflow_eos_provider.errors import ConfigurationError, UnreachableError
from airflow_eos_provider.kafka.kafka_session import Kafka, Session
from airflow_eos_provider.kafka.questions import CONNECT_SECONDS, TopicDescription
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

_CALL_SECONDS = 20.0
_POLL_SECONDS = 0.05

#: Every broker knows a new topic within this time, seconds.
_NEWS_SECONDS = 3.0

#: Copies of a new topic, where there are so many brokers.
_REPLICAS = 3

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class Topics:
    """The topics of one Kafka cluster. Every method raises :class:`UnreachableError` where no broker answers, and
    :class:`ConfigurationError` where the principal may not do it.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._session = kafka if isinstance(kafka, Session) else Session(kafka)

    def describe(self, names: Sequence[str]) -> dict[str, TopicDescription]:
        """The topics that the broker knows; others are absent. Asking does not make a topic, and needs Describe only.

        An answer that does not come is asked for again by a new client, which may reach another broker.
        """
        deadline = time.monotonic() + _CALL_SECONDS
        while True:
            try:
                with self._session.admin() as admin:
                    return admin.topics(names, CONNECT_SECONDS)
            except UnreachableError:
                if time.monotonic() > deadline:
                    raise

    def find(self, names: Sequence[str]) -> dict[str, TopicDescription]:
        """The topics that there are, also those created a moment ago; missing ones are absent."""
        found = self.describe(names)
        deadline = time.monotonic() + _NEWS_SECONDS  # from the first answer on, which may have come late
        while len(found) < len(names) and time.monotonic() <= deadline:
            time.sleep(_POLL_SECONDS)
            found = self.describe(names)
        return found

    def is_there(self, name: str) -> bool:
        """Whether a topic exists, also one created a moment ago."""
        return name in self.find([name])

    def settings_of(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """By topic its settings; needs DescribeConfigs."""
        found: dict[str, dict[str, str]] = {}
        deadline = time.monotonic() + _NEWS_SECONDS
        while wanted := [name for name in names if name not in found]:
            with self._session.admin() as admin:
                found |= admin.topic_settings(wanted, _CALL_SECONDS)
            if len(found) < len(names):
                if time.monotonic() > deadline:
                    raise missing_topic(next(name for name in names if name not in found), self._session.settings)
                time.sleep(_POLL_SECONDS)
        return found

    def partitions(self) -> dict[str, int]:
        """By name how many partitions each topic has that the principal may see."""
        with self._session.admin() as admin:
            return {name: topic.partitions for name, topic in sorted(admin.topics(None, _CALL_SECONDS).items())}

    def brokers(self) -> int:
        """How many brokers are there now."""
        with self._session.admin() as admin:
            return len(admin.cluster(_CALL_SECONDS, "asking for the brokers").ports)

    def create(self, name: str, partitions: int, settings: Mapping[str, str], replicas: int | None = None) -> bool:
        """Create a topic, and return when it is known.

        It gets ``min.insync.replicas`` by :func:`settings_of_new`.

        :param partitions: -1 for the brokers' default.
        :param replicas: copies of each partition, None for three where there are so many brokers, -1 for the brokers'
            default.
        :returns: False where the topic is there already, created by whoever was faster: its settings may be others.
        """
        from kafka.errors import TopicAlreadyExistsError

        replicas = min(_REPLICAS, self.brokers()) if replicas is None else replicas
        config = settings_of_new(settings, replicas)
        with self._session.admin() as admin:
            error = admin.create_topic(name, partitions, replicas, config, _CALL_SECONDS)
            if error is not None and not isinstance(error, TopicAlreadyExistsError):
                raise admin.explain(error, f"creating topic {name}") from error
        # The controller has it; the brokers hear of it a moment later.
        _await_change(name, lambda: "" if self.describe([name]) else "it does not exist")
        return error is None

    def change(self, name: str, settings: Mapping[str, str]) -> None:
        """Change settings of a topic, all or none; needs AlterConfigs. Brokers hear of it a moment later."""
        with self._session.admin() as admin:
            admin.change_topic(name, settings, _CALL_SECONDS)

    def delete(self, name: str) -> bool:
        """Delete a topic, and return when no broker that is asked knows it. Needs Delete.

        :returns: False where there was none.
        """
        from kafka.errors import UnknownTopicOrPartitionError

        with self._session.admin() as admin:
            error = admin.delete_topic(name, _CALL_SECONDS)
            if isinstance(error, UnknownTopicOrPartitionError):
                return False
            if error is not None:
                raise admin.explain(error, f"deleting topic {name}") from error
        _await_change(name, lambda: "it still exists" if self.describe([name]) else "")
        return True

    def await_settings(self, name: str, settings: Mapping[str, str]) -> None:
        """Return when the brokers say of a topic what it was changed to; needs DescribeConfigs."""

        def differing() -> str:
            found = self.settings_of([name])[name]
            others = {setting: found.get(setting) for setting in settings if found.get(setting) != settings[setting]}
            return ", ".join(f"{setting}={value}, not {settings[setting]}" for setting, value in others.items())

        _await_change(name, differing)


def require_topic_name(name: str, remedy: str | None = None) -> None:
    """Refuse what no topic can be called (``Topic.validate``)."""
    if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise ConfigurationError(
            f"No topic can be called {name!r}.",
            expected="up to 249 letters, digits, dots, dashes and underscores",
            remedy=remedy,
        )


def missing_topic(name: str, settings: KafkaSettings) -> ConfigurationError:
    """The error for a topic that has to be there."""
    return ConfigurationError(
        f"There is no topic {name} on the Kafka cluster at {settings.bootstrap_servers}.",
        remedy="Create it, or correct the name or bootstrap_servers; a topic that one may not describe looks absent.",
    )


def needed_in_sync(replicas: int) -> int:
    """The least ``min.insync.replicas`` with which no acknowledged record goes with its partition's leader.

    With 1 a leader alone acknowledges. What it alone has is lost if it does not come back, and so is what was decided
    because of it. A topic of one copy has no better value.
    """
    return min(2, replicas)


def settings_of_new(settings: Mapping[str, str], replicas: int) -> dict[str, str]:
    """What a topic is created with: these settings, and ``min.insync.replicas`` if they leave that open.

    :param replicas: copies of each partition, -1 for the brokers' default, where the brokers' default of
        ``min.insync.replicas`` is left, too.
    """
    in_sync = {"min.insync.replicas": str(needed_in_sync(replicas))} if replicas > 0 else {}
    return {**in_sync, **settings}


def _await_change(topic: str, problem: Callable[[], str]) -> None:
    """Return when no broker that is asked shows a topic otherwise than it was made."""
    deadline = time.monotonic() + _CALL_SECONDS
    while found := problem():
        if time.monotonic() > deadline:
            raise UnreachableError(
                f"Topic {topic} was changed, but after {_CALL_SECONDS:.0f} s the brokers say: {found}.",
                remedy="Check the cluster's controller, and whether another tool changes the topic.",
            )
        time.sleep(_POLL_SECONDS)
