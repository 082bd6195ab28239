"""Java's names become librdkafka's; what cannot be kept is refused by name."""

from __future__ import annotations

import pytest

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.settings.java_client import from_java
from airflow_eos_provider.redaction import redact

MODULES = "org.apache.kafka.common.security"
PLAIN = f"{MODULES}.plain.PlainLoginModule"
SCRAM = f"{MODULES}.scram.ScramLoginModule"
TOKENS = f"{MODULES}.oauthbearer.OAuthBearerLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
SASL = {"security.protocol": "SASL_SSL"}
ENDPOINT = "https://issuer/token"
STRIMZI = "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ({"bootstrap.servers": "b:1"}, {"bootstrap.servers": "b:1"}),
        ({"security.protocol": "SSL"}, {"security.protocol": "SSL"}),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f'{PLAIN} required username="me" password="pa55word";'},
            {"sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": "pa55word"},
        ),
        (
            {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": f'{SCRAM} required username="me" password="x";'},
            {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "me", "sasl.password": "x"},
        ),
        (
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": ENDPOINT,
                "sasl.login.callback.handler.class": f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
                "sasl.jaas.config": f'{TOKENS} required clientId="id" clientSecret="s" scope="kafka" '
                'extension_pool="p";',
            },
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": ENDPOINT,
                "sasl.oauthbearer.client.id": "id",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.scope": "kafka",
                "sasl.oauthbearer.extensions": "pool=p",
            },
        ),
        (
            {  # Kafka 4.1 and later
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": ENDPOINT,
                "sasl.oauthbearer.client.credentials.client.id": "id",
                "sasl.oauthbearer.client.credentials.client.secret": "s",
                "sasl.jaas.config": f"{TOKENS} required;",
            },
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": ENDPOINT,
                "sasl.oauthbearer.client.id": "id",
                "sasl.oauthbearer.client.secret": "s",
            },
        ),
        (
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.login.callback.handler.class": STRIMZI,
                "sasl.jaas.config": f'{TOKENS} required oauth.client.id="id" oauth.client.secret="s" '
                f'oauth.token.endpoint.uri="{ENDPOINT}" oauth.ssl.truststore.location="/ca.pem" '
                'oauth.ssl.truststore.type="PEM";',
            },
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": ENDPOINT,
                "sasl.oauthbearer.client.id": "id",
                "sasl.oauthbearer.client.secret": "s",
                "https.ca.location": "/ca.pem",
            },
        ),
        (
            {
                "sasl.mechanism": "AWS_MSK_IAM",
                "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
                "sasl.jaas.config": 'software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="prod";',
            },
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "msk-iam",
                "sasl.oauthbearer.config": "profile=prod",
            },
        ),
        (
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.login.callback.handler.class": "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler",
                "sasl.jaas.config": f"{TOKENS} required;",
            },
            {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "google"},
        ),
        (
            {
                "sasl.mechanism": "GSSAPI",
                "sasl.kerberos.service.name": "kafka",
                "sasl.jaas.config": f'{KERBEROS} required useKeyTab=true keyTab="/k.keytab" principal="me@REALM";',
            },
            {
                "sasl.mechanism": "GSSAPI",
                "sasl.kerberos.service.name": "kafka",
                "sasl.kerberos.keytab": "/k.keytab",
                "sasl.kerberos.principal": "me@REALM",
            },
        ),
        (
            {"ssl.truststore.location": "/t.p12", "ssl.truststore.password": "x", "ssl.truststore.type": "PKCS12"},
            {"ssl.truststore.location": "/t.p12", "ssl.truststore.password": "x"},
        ),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "-----BEGIN"}, {"ssl.ca.pem": "-----BEGIN"}),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "c", "ssl.keystore.key": "k"},
            {"ssl.certificate.pem": "c", "ssl.key.pem": "k"},
        ),
        (
            {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "x", "ssl.key.password": "y"},
            {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "x", "ssl.key.password": "y"},
        ),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        ({"ssl.enabled.protocols": "TLSv1.2,TLSv1.3", "ssl.protocol": "TLSv1.3", "ssl.provider": ""}, {}),
        (
            {"request.timeout.ms": "9000", "send.buffer.bytes": "-1", "receive.buffer.bytes": "65536"},
            {"socket.timeout.ms": "9000", "socket.receive.buffer.bytes": "65536"},
        ),
        ({"client.dns.lookup": "default", "reconnect.backoff.ms": "50"}, {"reconnect.backoff.ms": "50"}),
        ({"key.serializer": "X", "acks": "all", "interceptor.classes": "Y", "default.api.timeout.ms": "1"}, {}),
        ({"sasl.login.refresh.buffer.seconds": "300"}, {}),
    ],
)
def test_a_connection_of_java_in_librdkafkas_names(java: dict[str, str], ours: dict[str, str]) -> None:
    given = SASL if "sasl.mechanism" in java else {}
    assert from_java({**given, **java}) == {**given, **ours}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ssl.cipher.suites", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
        ("ssl.enabled.protocols", "TLSv1.3"),
        ("ssl.engine.factory.class", "org.example.Engine"),
        ("ssl.keystore.type", "PKCS11"),
        ("ssl.truststore.type", "BCFKS"),
        ("ssl.of.a.later.kafka", "x"),
        ("security.providers", "org.example.Fips"),
        ("sasl.login.class", "org.example.Login"),
        ("sasl.login.callback.handler.class", "org.example.Handler"),
        ("sasl.login.callback.handler.class", "org.example.OAuthBearerLoginCallbackHandler"),
        ("sasl.oauthbearer.header.urlencode", "true"),
        ("sasl.oauthbearer.jwt.retriever.class", "org.apache.kafka.common.security.oauthbearer.FileJwtRetriever"),
    ],
)
def test_a_security_setting_that_cannot_be_kept_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")):
        from_java({**SASL, "sasl.mechanism": "OAUTHBEARER", name: value})


@pytest.mark.parametrize(
    ("mechanism", "line", "words"),
    [
        ("SCRAM-SHA-256", f'{SCRAM} required username="a" password="s3cret-x" tokenauth=true;', "delegation token"),
        ("SCRAM-SHA-256", f'{PLAIN} required username="a" password="s3cret-x";', "no login for SCRAM-SHA-256"),
        ("PLAIN", f'{PLAIN} required username="a";', "no username or no password"),
        ("OAUTHBEARER", f'{TOKENS} required unsecuredLoginStringClaim_sub="a";', "unsecuredLoginStringClaim_sub"),
        ("OAUTHBEARER", f'{TOKENS} required ssl.truststore.location="/t.jks";', "no PEM file"),
        ("AWS_MSK_IAM", "software.amazon.msk.auth.iam.IAMLoginModule required awsStsRegion=x;", "awsStsRegion"),
    ],
)
def test_a_login_that_has_no_counterpart_is_refused(mechanism: str, line: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as refused:
        from_java({**SASL, "sasl.mechanism": mechanism, "sasl.jaas.config": line})
    assert "s3cret-x" not in str(refused.value)


def test_a_login_elsewhere_is_the_jvms_alone() -> None:
    with pytest.raises(ConfigurationError, match=r"java\.security\.auth\.login\.config"):
        from_java({**SASL, "sasl.mechanism": "PLAIN"})


def test_a_value_of_a_config_provider_is_no_value_here() -> None:
    java = {"config.providers": "file", "ssl.keystore.password": "${file:/s:p}"}
    with pytest.raises(ConfigurationError, match=r"ssl\.keystore\.password gets its value from a config provider"):
        from_java(java)
    assert from_java({"ssl.keystore.password": "${file:/s:p}"}) == {"ssl.keystore.password": "${file:/s:p}"}


def test_a_worker_has_clients_of_several_kinds_in_one_file() -> None:
    worker = {
        "bootstrap.servers": "b:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="worker" password="w0rker-x";',
        "producer.security.protocol": "SSL",
        "producer.ssl.truststore.location": "/t.p12",
        "admin.bootstrap.servers": "c:1",
        "listeners.https.ssl.keystore.location": "/rest.jks",
    }
    assert from_java(worker)["sasl.username"] == "worker"
    assert from_java(worker, "producer.") == {
        "bootstrap.servers": "b:1",
        "security.protocol": "SSL",
        "ssl.truststore.location": "/t.p12",
    }
    assert from_java(worker, "admin.") == {"bootstrap.servers": "c:1"}


def test_a_key_that_java_reads_from_one_line_gets_its_line_ends() -> None:
    """As files of properties have them: a line that is continued has no line end."""
    content = "QUJD" * 32
    chain = f"-----BEGIN CERTIFICATE----- {content} -----END CERTIFICATE-----" * 2
    found = from_java({"ssl.keystore.certificate.chain": chain, "ssl.keystore.key": "as it is"})
    one = f"-----BEGIN CERTIFICATE-----\n{content[:64]}\n{content[64:]}\n-----END CERTIFICATE-----\n"
    assert found == {"ssl.certificate.pem": one * 2, "ssl.key.pem": "as it is"}
    assert from_java({"ssl.keystore.certificate.chain": one})["ssl.certificate.pem"] == one


def test_a_password_of_a_jaas_line_is_known_as_a_secret() -> None:
    line = f'{PLAIN} required username="me" password="jaas-c4n4ry-77";'
    from_java({**SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": line})
    assert redact("it was jaas-c4n4ry-77 again") == "it was *** again"
