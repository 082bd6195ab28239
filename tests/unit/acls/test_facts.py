"""As whom clients log in, and what a cluster's files and connectors say of the rights in it."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_eos_provider.acls.cluster_facts import Facts, Principals, Seen, SeenConnector, facts_of
from airflow_eos_provider.acls.logins import client_properties, login_of
from airflow_eos_provider.acls.read_rights import sources
from airflow_eos_provider.acls.rules import Role
from airflow_eos_provider.changes.rights.asked import interval_facts
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectorStatus
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

PASSWORD = "canary-55aa"
BROKERS = "kafka-1:9092"
W1 = "w1:8083"


def plain(user: str, before: str = "") -> dict[str, str]:
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{user}" password="{PASSWORD}";'
    found = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    return {f"{before}{name}": value for name, value in found.items()}


def facts(*connectors: SeenConnector, file: dict[str, str] | None = None, principals: Any = None, **more: Any) -> Facts:
    properties = {"bootstrap.servers": BROKERS, **plain("w")} if file is None else file
    seen = Seen("g", "c", "o", "s", KafkaSettings.of(BROKERS), [properties] if properties else [], connectors)
    return facts_of(seen, Mode.ENABLED, principals or Principals(), **more)


def test_a_login_by_plain_and_scram_says_the_principal() -> None:
    login = login_of(plain("w"), BROKERS)
    assert login.principal == "User:w"
    assert login.settings is not None
    assert login.settings.properties["sasl.password"] == PASSWORD
    assert PASSWORD not in repr(login)
    scram = plain("w") | {"sasl.mechanism": "SCRAM-SHA-512"}
    scram["sasl.jaas.config"] = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required username=w password=x;"
    )
    assert login_of(scram, BROKERS).principal == "User:w"


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "GSSAPI"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "/k"}, "certificate"),
        ({**plain("w"), "sasl.jaas.config": "${file:/x:jaas}"}, "config provider"),
    ],
)
def test_another_login_does_not(properties: dict[str, str], problem: str) -> None:
    login = login_of(properties, BROKERS)
    assert login.principal is None
    assert login.settings is None
    assert problem in login.problem


def test_without_a_login_one_is_anonymous() -> None:
    assert login_of({}, BROKERS).principal == "User:ANONYMOUS"


def test_the_trust_of_this_package_wins_for_they_are_the_same_brokers() -> None:
    store = {"ssl.truststore.location": "/t.jks", "ssl.truststore.type": "JKS"}
    ours = login_of({**plain("w"), "security.protocol": "SASL_SSL", **store}, BROKERS, ca="/ca.pem").settings
    assert ours is not None
    assert ours.properties["ssl.ca.location"] == "/ca.pem"
    assert "ssl.truststore.location" not in ours.properties


def test_a_trust_store_of_pkcs12_is_read() -> None:
    store = {"ssl.truststore.location": "/t.p12", "ssl.truststore.type": "PKCS12", "ssl.truststore.password": "x"}
    login = login_of({**plain("w"), "security.protocol": "SASL_SSL", **store}, BROKERS)
    assert login.settings is not None
    assert login.settings.properties["ssl.truststore.location"] == "/t.p12"


def test_producers_and_consumers_have_nothing_of_the_workers_own_login() -> None:
    worker = {"bootstrap.servers": BROKERS, **plain("w"), **plain("p", "producer.")}
    connector = plain("a", "admin.override.")
    assert login_of(client_properties("producer", worker, {}), BROKERS).principal == "User:p"
    assert login_of(client_properties("consumer", worker, {}), BROKERS).principal == "User:ANONYMOUS"
    assert login_of(client_properties("admin", worker, {}), BROKERS).principal == "User:w"
    assert login_of(client_properties("admin", worker, connector), BROKERS).principal == "User:a"


def test_the_principals_that_are_given_win() -> None:
    given = Principals(worker="User:1", producer="User:2", consumer="User:3", admin="User:4")
    found = facts(SeenConnector("a", {}), principals=given)
    assert [each.principal for each in found.workers] == ["User:1"]
    (one,) = found.connectors
    assert (one.producer, one.consumer, one.admin) == ("User:2", "User:3", "User:4")


def test_a_worker_that_does_not_say_who_it_is_has_to_be_named() -> None:
    with pytest.raises(ConfigurationError, match="The principal of the workers is unknown"):
        facts(file={})
    with pytest.raises(ConfigurationError, match="do not name it"):
        facts(file={"security.protocol": "SSL", "ssl.keystore.location": "/k"})


def test_of_a_client_that_does_not_say_it_the_workers_is_assumed_and_that_is_said() -> None:
    config = {"producer.override.security.protocol": "SSL", "producer.override.ssl.keystore.location": "/k"}
    found = facts(SeenConnector("a", config))
    assert found.connectors[0].producer == "User:w"
    assert any("the principal of its producer is unknown" in note for note in found.notes)


def test_a_client_in_another_kafka_cluster_is_left_out_and_its_login_is_not_tried() -> None:
    config = {"producer.override.bootstrap.servers": "elsewhere:9092", **plain("p", "producer.override.")}
    found = facts(SeenConnector("a", config, 1))
    assert Role.PRODUCER not in {rule.role for rule in found.rules()}
    assert Role.ADMIN in {rule.role for rule in found.rules()}
    assert "User:p" not in found.logins
    assert any("another Kafka cluster" in note for note in found.notes)


def test_ids_are_of_the_tasks_that_there_are_or_that_may_be() -> None:
    connector = SeenConnector("a", {"tasks.max": "4"}, tasks=2)
    assert facts(connector).ids == ("g-a-0", "g-a-1")
    assert any("tasks.max is 4, and it has 2 tasks" in note for note in facts(connector).notes)
    assert facts(connector, for_tasks_max=True).ids == ("g-a-0", "g-a-1", "g-a-2", "g-a-3")


def test_one_connectors_rules_alone() -> None:
    found = facts(SeenConnector("a", {}, 1), SeenConnector("b", {}, 1))
    assert {rule.connector for rule in found.of_connectors(["a"]).rules()} == {"a"}
    with pytest.raises(ConfigurationError, match="no source connector c"):
        found.of_connectors(["c"])


def test_sinks_are_left_out() -> None:
    statuses = {
        "in": ConnectorStatus("in", "source", "RUNNING", "w"),
        "out": ConnectorStatus("out", "sink", "RUNNING", "w"),
        "odd": ConnectorStatus("odd", "unknown", "RUNNING", "w", config={"topics": "t"}),
    }
    assert [one.name for one in sources(None, statuses, {"in": ("t",)})] == ["in"]


@pytest.mark.parametrize(
    "principal", ["user:alice", "User:", "alice", "", "USER:a", "Group:admins", "User: ", "User:a ", "User:a\n", "*"]
)
@pytest.mark.parametrize("client", ["worker", "producer", "consumer", "admin"])
def test_a_principal_that_no_client_can_have_is_refused(client: str, principal: str) -> None:
    with pytest.raises(ConfigurationError, match=f"The principal of the {client}"):
        Principals(**{client: principal})


def test_principals_of_certificates_and_of_interval_runs_have_the_same_form() -> None:
    assert Principals("User:CN=connect, O=ex:ample").worker == "User:CN=connect, O=ex:ample"
    assert interval_facts(["g/p:t"], "User:spark")[0].principal == "User:spark"
    with pytest.raises(ConfigurationError, match="The principal of the interval runs is 'spark'"):
        interval_facts(["g/p:t"], "spark")


def test_a_login_without_a_name_has_no_principal() -> None:
    assert login_of(plain(""), BROKERS).principal is None


def test_what_is_not_known_of_a_connector_is_a_gap_and_named_with_it() -> None:
    supplied = SeenConnector("a", {"offsets.storage.topic": "${file:/f:t}"}, 1, ("t",))
    found = facts(supplied, SeenConnector("b", {}, 1, ()), SeenConnector("c", {}, 1, ("t",)))
    assert [name for name, _ in found.gaps] == ["a", "b"]
    assert {text for _, text in found.gaps} <= set(found.notes)
    assert not any("${" in rule.name or not rule.name for rule in found.rules())


def test_the_topics_that_a_configuration_names_count_where_connect_has_not_seen_any() -> None:
    status = ConnectorStatus("a", "source", "RUNNING", W1, config={"topic": "lines", "kafka.topic": "${env:T}"})
    (one,) = sources(None, {"a": status}, {})
    assert one.topics == ("lines",)
    (one,) = sources(None, {"a": status}, {"a": ("seen",)})
    assert one.topics == ("seen",)
