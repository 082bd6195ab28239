"""Every way into a real broker, by both client libraries; and what is said where one does not work."""

from __future__ import annotations

import json
import pickle
import re
import select
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kafka.net.transport import KafkaSSLTransport

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.demo.oracle import compare, drain, expected_from_values
from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.messages import Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol.coordinator import Coordinator
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.spark.executors.tasks import SLICE_COLUMN, write_rows
from airflow_eos_provider.interval.spark.job import JobSpec
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.settings.java_client import from_java
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.lab import Lab
from tests.integration import secured_listeners
from tests.integration.secured_listeners import PASSWORD, SESSION_MS, STORE_PASSWORD, USER, SecuredListeners
from tests.lab.certificates import Authority
from tests.lab.token_issuer import TokenIssuer
from tests.waiting import until

CLIENT_SECRET = "cl1ent-5ecret-0f-tokens"
WRONG = "wr0ng-pa55word"

DAY = Interval.parse("2013-01-01T00:00:00Z/2013-01-02T00:00:00Z")

#: One for each reader of tokens, so that the issuer can tell them apart.
LIBRDKAFKA, KAFKA_PYTHON, CALLBACK, OTHER = "by-librdkafka", "by-kafka-python", "by-callback", "other"
INTERVAL = "interval-runs"

#: Of a token, while its renewal is looked at.
SHORT_LIFE_SECONDS = 5.0

_MODULES = "org.apache.kafka.common.security"


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer(dict.fromkeys((LIBRDKAFKA, KAFKA_PYTHON, CALLBACK, OTHER, INTERVAL), CLIENT_SECRET)) as issuer:
        yield issuer


@pytest.fixture(scope="module")
def listeners(tmp_path_factory: pytest.TempPathFactory, issuer: TokenIssuer) -> SecuredListeners:
    return SecuredListeners(tmp_path_factory.mktemp("secured"), issuer)


@pytest.fixture(scope="module", autouse=True)
def lab(lab_factory: Callable[..., Lab], listeners: SecuredListeners) -> Lab:
    with listeners.given():
        lab = lab_factory(name="client-security", workers=0)
    listeners.add_scram(lab.bootstrap_servers)
    return lab


def by_librdkafka(session: Session) -> None:
    with session.consumer() as consumer:
        assert consumer.client.list_topics(timeout=60.0).brokers


def by_kafka_python(session: Session, transactional_id: str = "fenced-by-nobody") -> None:
    with session.transactions() as transactions:
        transactions.fence([transactional_id])
        assert transactional_id in transactions.describe([transactional_id])
        assert transactional_id in [listed.transactional_id for listed in transactions.list(transactional_id)]


def assert_works(settings: KafkaSettings) -> None:
    """Both libraries get in, and both ask something that only a broker can answer."""
    with Session(settings) as session:
        by_librdkafka(session)
        by_kafka_python(session)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_over_tls(listeners: SecuredListeners, mechanism: str) -> None:
    assert_works(KafkaSettings.of(listeners.passwords, listeners.password(mechanism)))


def pem_files(listeners: SecuredListeners) -> dict[str, str]:
    own = listeners.client
    return {"ssl.certificate.location": str(own.certificate), "ssl.key.location": str(own.key), **listeners.trust}


def pem_text(listeners: SecuredListeners) -> dict[str, str]:
    own = listeners.client
    return {
        "ssl.certificate.pem": own.certificate.read_text(),
        "ssl.key.pem": own.key.read_text(),
        "ssl.ca.pem": listeners.authority.certificate.read_text(),
    }


def stores(listeners: SecuredListeners) -> dict[str, str]:
    return {
        "ssl.keystore.location": str(listeners.client.keystore),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.truststore.location": str(listeners.authority.truststore),
        "ssl.truststore.password": STORE_PASSWORD,
    }


@pytest.mark.parametrize("certificate", [pem_files, pem_text, stores])
def test_a_certificate(listeners: SecuredListeners, certificate: Callable[[SecuredListeners], dict[str, str]]) -> None:
    client = {"security.protocol": "SSL", **certificate(listeners)}
    assert_works(KafkaSettings.of(listeners.certificates, client))


def test_a_properties_file_of_java_serves_a_cluster_file_and_a_command(
    lab: Lab, listeners: SecuredListeners, eos_of: Callable[[Lab, Path], Any], tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    login = f'{_MODULES}.scram.ScramLoginModule required username="{USER}" password="{PASSWORD}";'
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.jaas.config={login}\n"
        f"ssl.truststore.location={listeners.authority.truststore}\n"
        f"ssl.truststore.password={STORE_PASSWORD}\nssl.truststore.type=PKCS12\n"
        "ssl.enabled.protocols=TLSv1.2,TLSv1.3\nrequest.timeout.ms=20000\n"
    )
    file.chmod(0o600)
    cluster = tmp_path / "eos.yaml"
    description = {"command_config": file.name, "group_id": "connect", "workers": [{"url": "http://127.0.0.1:1"}]}
    cluster.write_text(json.dumps({"bootstrap_servers": listeners.passwords, **description}))  # which is YAML, too
    assert_works(ConnectCluster.from_file(cluster).kafka)
    # Where a job's driver runs on Kubernetes, the file is there, and nothing of the login is sent.
    pipeline = Pipeline("flights", "etl", KafkaSettings.of(listeners.passwords))
    job = JobSpec(pipeline, DAY, "json:dumps", client_file=str(file))
    assert_works(JobSpec.from_dict(job.to_dict()).with_client_of_file().pipeline.kafka)
    eos = eos_of(lab, tmp_path)
    asked = eos.run("discover", "-g", "connect", "-b", listeners.passwords, "--command-config", str(file), expect=2)
    assert "There is no group connect" in asked.stderr  # so the brokers have answered
    assert PASSWORD not in asked.stdout + asked.stderr


def test_a_workers_own_file_serves_with_the_prefix_of_its_producers(listeners: SecuredListeners) -> None:
    own = listeners.client
    worker = {
        "bootstrap.servers": listeners.certificates,
        "group.id": "connect",
        "security.protocol": "PLAINTEXT",
        "producer.security.protocol": "SSL",
        "producer.ssl.keystore.type": "PEM",
        "producer.ssl.keystore.certificate.chain": own.certificate.read_text(),
        "producer.ssl.keystore.key": own.key.read_text(),
        "producer.ssl.truststore.type": "PEM",
        "producer.ssl.truststore.certificates": listeners.authority.certificate.read_text(),
    }
    assert_works(KafkaSettings(from_java(worker, "producer.")))


def test_tokens_are_renewed_by_clients_that_stay(
    listeners: SecuredListeners, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session ends before its token does; nobody polls a client meanwhile."""
    assert SESSION_MS < SHORT_LIFE_SECONDS * 1000
    monkeypatch.setattr(issuer, "life_seconds", SHORT_LIFE_SECONDS)
    monkeypatch.setattr(secured_listeners, "CALLBACK_ISSUER", (issuer.token_endpoint, CALLBACK, CLIENT_SECRET))
    by_callback = listeners.token(CALLBACK, "") | {"oauth_cb": "tests.integration.secured_listeners.callback"}
    with (
        Session(KafkaSettings.of(listeners.tokens, listeners.token(LIBRDKAFKA, CLIENT_SECRET))) as native,
        Session(KafkaSettings.of(listeners.tokens, listeners.token(KAFKA_PYTHON, CLIENT_SECRET))) as python,
        Session(KafkaSettings.of(listeners.tokens, by_callback)) as callback,
    ):
        by_librdkafka(native)
        by_librdkafka(callback)
        by_kafka_python(python)
        begun = dict(issuer.granted)
        assert all(begun[each] for each in (LIBRDKAFKA, KAFKA_PYTHON, CALLBACK)), begun
        renewed = {
            LIBRDKAFKA: begun[LIBRDKAFKA] + 2,
            CALLBACK: begun[CALLBACK] + 2,
            KAFKA_PYTHON: begun[KAFKA_PYTHON] + 2,
        }
        until(
            lambda: all(issuer.granted[each] >= count for each, count in renewed.items()),
            f"{renewed} tokens",
            seconds=60,
        )
        by_librdkafka(native)
        by_librdkafka(callback)
        by_kafka_python(python)
        assert [each.clients_made for each in (native, python, callback)] == [1, 1, 1]


def by_token(listeners: SecuredListeners) -> KafkaSettings:
    return KafkaSettings.of(listeners.tokens, listeners.token(INTERVAL, CLIENT_SECRET))


def by_stores(listeners: SecuredListeners) -> KafkaSettings:
    return KafkaSettings.of(listeners.certificates, {"security.protocol": "SSL", **stores(listeners)})


EXECUTOR = f"""
import pickle, sys
from {__name__} import write_elsewhere
print(write_elsewhere(*pickle.load(sys.stdin.buffer)))
"""


def write_elsewhere(pipeline: Mapping[str, Any], stage: Mapping[str, Any]) -> list[int]:
    """A task of an interval run, as an executor carries it out; returns how many records its slices have."""
    import pyarrow as pa

    values = pa.array([b"a", b"b"])
    rows = {"key": values, "value": values, SLICE_COLUMN: pa.array([0, 1], pa.int32())}
    batch = pa.RecordBatch.from_pydict(rows)
    written = write_rows(pipeline, stage, 0, [batch])
    return [result.records for _, result in written if result is not None]


@pytest.mark.parametrize("settings", [by_token, by_stores])
def test_an_interval_run_is_written_by_another_process(
    lab: Lab, listeners: SecuredListeners, issuer: TokenIssuer, settings: Callable[[SecuredListeners], KafkaSettings]
) -> None:
    """As Spark's executors do: all that they know is the pipeline, pickled; tokens and keys they get themselves."""
    name = settings.__name__.replace("_", "-")
    lab.create_topic(name, 1)
    pipeline = Pipeline(name=name, group_id="client-security", kafka=settings(listeners), topic=name)
    run = Run(name, DAY)
    plan = RunPlan(run, [{"part": 0}, {"part": 1}], {"kind": "test"})
    with Coordinator(pipeline, run) as coordinator:
        stage = coordinator.begin(lambda: plan, 1)
        assert isinstance(stage, Stage)
        granted = issuer.granted[INTERVAL]
        shipped = pickle.dumps((pipeline.to_dict(), stage.to_dict()))
        executor = subprocess.run([sys.executable, "-c", EXECUTOR], input=shipped, capture_output=True, timeout=180)
        assert executor.stdout == b"[1, 1]\n", executor.stderr.decode()
        assert (issuer.granted[INTERVAL] > granted) is (settings is by_token)  # the other process has asked for its own
        coordinator.finish(stage)
    assert compare(expected_from_values([b"a", b"b"], "the rows"), drain(pipeline.kafka, name)).exactly_once


def test_a_token_lasts_while_its_issuer_is_away(
    listeners: SecuredListeners, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = KafkaSettings.of(listeners.tokens, listeners.token(OTHER, CLIENT_SECRET))
    assert_works(settings)
    monkeypatch.setattr(issuer, "refuses", True)
    with Session(settings) as session:
        by_kafka_python(session)
    assert issuer.granted[OTHER]
    fresh = KafkaSettings.of(listeners.tokens, listeners.token(OTHER, CLIENT_SECRET) | {"sasl.oauthbearer.scope": "x"})
    with Session(fresh) as session, pytest.raises(UnreachableError, match="answered 503"):
        by_librdkafka(session)


@pytest.fixture(scope="module")
def refusals(
    listeners: SecuredListeners, issuer: TokenIssuer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, EosError]]:
    """What is said of each case, all asked at once. The first question of every command goes through kafka-python."""
    secured_listeners.EXPIRED_TOKEN = issuer.token(OTHER, life_seconds=-600)
    other = Authority(tmp_path_factory.mktemp("other"), STORE_PASSWORD)
    unknown_client = other.issue("unknown")
    tls = {"security.protocol": "SSL", **listeners.trust}
    unknown = {"ssl.certificate.location": str(unknown_client.certificate), "ssl.key.location": str(unknown_client.key)}
    of_the_past = {"oauth_cb": f"{secured_listeners.__name__}.expired"}
    cases: dict[str, tuple[str, Mapping[str, str]]] = {
        "wrong password": (listeners.passwords, listeners.password("SCRAM-SHA-512") | {"sasl.password": WRONG}),
        "untrusted authority": (
            listeners.passwords,
            listeners.password("PLAIN") | {"ssl.ca.location": str(other.certificate)},
        ),
        "no certificate": (listeners.certificates, tls),
        "unknown certificate": (listeners.certificates, tls | unknown),
        "wrong mechanism": (listeners.tokens, listeners.password("PLAIN")),
        "wrong secret": (listeners.tokens, listeners.token(OTHER, WRONG)),
        "expired token": (listeners.tokens, listeners.token(OTHER, CLIENT_SECRET) | of_the_past),
    }
    with ThreadPoolExecutor(len(cases)) as pool:
        answers = {case: pool.submit(refusal, KafkaSettings.of(*given)) for case, given in cases.items()}
        yield {case: answer.result() for case, answer in answers.items()}


def refusal(settings: KafkaSettings) -> EosError:
    with Session(settings) as session:
        try:
            by_kafka_python(session)
        except EosError as error:
            return error
    raise AssertionError(f"{settings} was taken")


#: What is said, by the brokers or the libraries, of each case.
WORDS = {
    "wrong password": r"invalid credentials",
    "untrusted authority": r"certificate verify failed",
    "no certificate": r"alert (?:bad certificate|certificate required)|ALERT_(?:BAD_CERTIFICATE|CERTIFICATE_REQUIRED)",
    "unknown certificate": r"alert|ALERT",
    "wrong mechanism": r"(?i)unsupported ?sasl ?mechanism",
    "wrong secret": r"refused the client other: 401 invalid_client",
    "expired token": r"(?i)authentication",
}


@pytest.mark.parametrize("case", WORDS)
def test_a_refusal_is_told_as_one_and_without_a_secret(refusals: dict[str, EosError], case: str) -> None:
    error = refusals[case]
    assert isinstance(error, ConfigurationError), error
    assert error.exit_code == 2
    assert re.search(WORDS[case], error.found), error
    assert not any(secret in str(error) for secret in (PASSWORD, CLIENT_SECRET, WRONG, STORE_PASSWORD))
    assert secured_listeners.EXPIRED_TOKEN not in str(error)


def test_a_refusal_that_is_read_together_with_the_hang_up_is_not_lost(
    listeners: SecuredListeners, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, answers = KafkaSSLTransport._sock_recv, Counter[int]()

    def once_the_broker_has_hung_up(transport: Any) -> Any:
        # The first answer is about versions of requests; behind the second, the refusal, the broker hangs up.
        if answers[id(transport)] == 1:
            hung_up = select.poll()
            hung_up.register(transport._sock, select.POLLRDHUP)
            assert hung_up.poll(20_000), "the broker did not hang up"
        data, end = receive(transport)
        answers[id(transport)] += bool(data)
        return data, end

    monkeypatch.setattr(KafkaSSLTransport, "_sock_recv", once_the_broker_has_hung_up)
    settings = KafkaSettings.of(listeners.tokens, listeners.password("PLAIN"))
    error = refusal(settings)
    assert isinstance(error, ConfigurationError), error
    assert re.search(WORDS["wrong mechanism"], error.found), error
    assert max(answers.values()) >= 2
