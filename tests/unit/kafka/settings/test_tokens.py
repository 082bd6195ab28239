"""Tokens: fetched from where the properties say, kept until most of their life is over, refused in plain words."""

from __future__ import annotations

import base64
import datetime
import json
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.kafka.settings import kafka_python_settings, librdkafka_settings, tokens
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.settings.tokens import Token, TokenSource, cloud_method, google_token, token_source
from airflow_eos_provider.redaction import redact
from tests.lab.certificates import Authority
from tests.lab.token_issuer import TokenIssuer

SECRET = "cl1ent-5ecret-77"
GOOGLE = "bootstrap.my-cluster.europe-west1.managedkafka.my-project.cloud.goog:9092"
SASL = {"bootstrap.servers": "b:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer({"me": SECRET}) as issuer:
        yield issuer


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock: nobody waits for a token to grow old."""

    def set_clock(now: float) -> None:
        monkeypatch.setattr(tokens, "time", SimpleNamespace(time=lambda: now))

    set_clock(1_000.0)
    return set_clock


def oidc(issuer: TokenIssuer, **more: str) -> dict[str, str]:
    return {
        **SASL,
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": issuer.token_endpoint,
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": SECRET,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def claims(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


class Numbered:
    """Gives tokens of a hundred seconds, until it is told to fail."""

    def __init__(self) -> None:
        self.given = 0
        self.fails = False

    def __call__(self) -> Token:
        if self.fails:
            raise UnreachableError("away")
        self.given += 1
        return Token(f"token-{self.given}", tokens.time.time() + 100)


def test_a_token_is_kept_until_four_fifths_of_its_life_are_over(at: Callable[[float], None]) -> None:
    source = TokenSource(Numbered())
    assert [source.token().value for _ in range(3)] == ["token-1"] * 3
    at(1_079.0)
    assert source.token().value == "token-1"
    at(1_080.0)
    assert source.token().value == "token-2"


def test_a_token_that_cannot_be_renewed_is_given_as_long_as_it_lives(at: Callable[[float], None]) -> None:
    fetch = Numbered()
    source = TokenSource(fetch)
    source.token()
    fetch.fails = True
    at(1_099.0)
    assert source.token().value == "token-1"
    at(1_100.0)
    with pytest.raises(UnreachableError, match="away"):
        source.token()
    fetch.fails = False
    assert source.token().value == "token-2"


def test_a_renewal_that_failed_is_not_tried_at_once_again(at: Callable[[float], None]) -> None:
    """Each try may wait for its answer, and a client that logs in meanwhile would run out of its own time."""
    asked: list[float] = []

    def fetch() -> Token:
        asked.append(tokens.time.time())
        if len(asked) > 1:
            raise UnreachableError("away")
        return Token("token-1", 1_100.0)

    source = TokenSource(fetch)
    for now in (1_000.0, 1_080.0, 1_081.0, 1_094.0, 1_095.0, 1_096.0):
        at(now)
        assert source.token().value == "token-1"
    assert asked == [1_000.0, 1_080.0, 1_095.0]


def test_authorities_of_a_token_endpoint_are_a_file_or_a_folder_or_text(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "st0re-pa55word").certificate
    folder = tmp_path / "folder"
    folder.mkdir()
    nobody = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": SECRET,
    }
    for given in (
        {"https.ca.location": str(authority)},
        {"https.ca.location": str(folder)},
        {"https.ca.pem": "# Autorität\n" + authority.read_text()},
    ):
        with pytest.raises(UnreachableError, match="did not answer"):
            token_source({**SASL, **nobody, **given}).token()


def test_client_credentials_get_a_token_with_scope_and_extensions(issuer: TokenIssuer) -> None:
    token = token_source(oidc(issuer, sasl_oauthbearer_scope="s1", sasl_oauthbearer_extensions="a=1,b=2")).token()
    assert claims(token.value)["sub"] == token.principal == "me"
    assert claims(token.value)["scope"] == "s1"
    assert claims(token.value)["exp"] == token.expires_at
    assert token.extensions == {"a": "1", "b": "2"}
    assert token.value not in repr(token)
    assert redact(f"it was {token.value}") == "it was ***"


def test_all_clients_of_a_process_have_one_token(issuer: TokenIssuer) -> None:
    for _ in range(3):
        provider = kafka_python_settings.configuration(oidc(issuer))["sasl_oauth_token_provider"]
        librdkafka_settings.configuration({**oidc(issuer), "client.id": "another"})
        assert claims(provider.token())["sub"] == "me"
    assert issuer.granted["me"] == 1


def test_librdkafka_asks_the_token_endpoint_itself(issuer: TokenIssuer) -> None:
    assert librdkafka_settings.configuration(oidc(issuer)) == oidc(issuer)


def test_a_refusal_names_client_and_reason_and_no_secret(issuer: TokenIssuer) -> None:
    wrong = oidc(issuer, sasl_oauthbearer_client_secret="wr0ng-5ecret")
    KafkaSettings(wrong)
    for configuration in (librdkafka_settings.configuration, kafka_python_settings.configuration):
        with pytest.raises(ConfigurationError, match="refused the client me: 401 invalid_client") as refused:
            configuration(wrong)
        assert "wr0ng-5ecret" not in str(refused.value)


def test_an_issuer_that_is_away_is_unreachable(issuer: TokenIssuer) -> None:
    issuer.refuses = True
    with pytest.raises(UnreachableError, match="answered 503"):
        token_source(oidc(issuer)).token()
    nobody = oidc(issuer) | {"sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token"}
    with pytest.raises(UnreachableError, match="did not answer"):
        token_source(nobody).token()


def test_what_is_missing_is_said(issuer: TokenIssuer) -> None:
    for name in ("token.endpoint.url", "client.id", "client.secret"):
        given = oidc(issuer)
        del given[f"sasl.oauthbearer.{name}"]
        with pytest.raises(ConfigurationError, match="something is missing"):
            token_source(given)


def test_another_answer_is_no_token(issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuer, "grant", lambda *_: {"hello": "world"})
    with pytest.raises(ConfigurationError, match="holds no access_token"):
        token_source(oidc(issuer)).token()


def test_a_token_that_is_no_json_web_token_lives_as_long_as_the_answer_says(
    issuer: TokenIssuer, at: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"access_token": "opaque-t0ken", "expires_in": 60}
    monkeypatch.setattr(issuer, "grant", lambda *_: answer)
    assert token_source(oidc(issuer)).token() == Token("opaque-t0ken", 1_060.0)
    assert redact("it was opaque-t0ken") == "it was ***"


def gives(config: str) -> tuple[str, float, str, dict[str, str]]:
    return f"for-{config}", 2_000.0, "somebody", {"x": "1"}


def gives_nothing(_: str) -> None:
    raise RuntimeError("no credentials here")


def test_a_function_gives_tokens_to_both_libraries(at: Callable[[float], None]) -> None:
    given = {**SASL, "oauth_cb": f"{__name__}.gives", "sasl.oauthbearer.config": "pool", "sasl.oauthbearer.method": "x"}
    configured = librdkafka_settings.configuration(given)
    callback = configured["oauth_cb"]
    assert callable(callback)
    assert callback("") == ("for-pool", 2_000.0, "somebody", {"x": "1"})
    assert "sasl.oauthbearer.method" not in configured
    provider = kafka_python_settings.configuration(given)["sasl_oauth_token_provider"]
    assert (provider.token(), provider.extensions()) == ("for-pool", {"x": "1"})


def test_without_tokens_a_function_is_not_asked_for() -> None:
    assert "oauth_cb" not in librdkafka_settings.configuration({"bootstrap.servers": "b:1", "oauth_cb": "no.such"})


@pytest.mark.parametrize(
    ("path", "kind", "words"),
    [
        ("no.such.function", ConfigurationError, "cannot be loaded"),
        ("function", ConfigurationError, "cannot be loaded"),
        (f"{__name__}.SECRET", ConfigurationError, "is no function"),
        (f"{__name__}.gives_nothing", UnreachableError, "RuntimeError: no credentials here"),
    ],
)
def test_a_function_that_gives_none_is_told(path: str, kind: type[EosError], words: str) -> None:
    with pytest.raises(kind, match=words):
        librdkafka_settings.configuration({**SASL, "oauth_cb": path})


@pytest.mark.parametrize(
    ("addresses", "method"),
    [
        ("b-1.demo.abcde1.c2.kafka.eu-central-1.amazonaws.com:9098", "msk-iam"),
        ("boot-abcde1.c2.kafka-serverless.us-east-1.amazonaws.com:9098", "msk-iam"),
        ("b-1.demo.abcde1.c2.kafka.cn-north-1.amazonaws.com.cn:9098", "msk-iam"),
        ("b-1.demo.abcde1.c2.kafka.eu-central-1.amazonaws.com:9098,kafka.example.com:9092", None),
        (GOOGLE, "google"),
        ("kafka.example.com:9092", None),
        ("x.kafka.eu-central-1.amazonaws.com.example.com:9098", None),
    ],
)
def test_the_brokers_names_tell_a_cloud(addresses: str, method: str | None) -> None:
    assert cloud_method(addresses) == method


@pytest.mark.parametrize(
    ("method", "library"), [("msk-iam", "aws-msk-iam-sasl-signer-python"), ("google", "google-auth")]
)
def test_a_signer_that_is_missing_is_named_with_what_installs_it(
    method: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("aws_msk_iam_sasl_signer", "google.auth"):
        monkeypatch.setitem(sys.modules, name, None)
    given = {"bootstrap.servers": GOOGLE, "security.protocol": "SASL_SSL", "sasl.oauthbearer.method": method}
    with pytest.raises(ConfigurationError, match=rf"{library}(.|\n)*airflow-eos-provider\[{method}\]"):
        librdkafka_settings.configuration({**SASL, **given})


@pytest.mark.parametrize(
    "more",
    [
        {"bootstrap.servers": "kafka.example.com:9092"},
        {"bootstrap.servers": f"{GOOGLE},kafka.example.com:9092"},
        {"security.protocol": "SASL_PLAINTEXT"},
    ],
)
def test_only_googles_brokers_get_a_token_of_google(more: dict[str, str]) -> None:
    given = {**SASL, "bootstrap.servers": GOOGLE, "security.protocol": "SASL_SSL", "sasl.oauthbearer.method": "google"}
    for configuration in (librdkafka_settings.configuration, kafka_python_settings.configuration):
        with pytest.raises(ConfigurationError, match="to brokers that are not Google's"):
            configuration({**given, **more})


class Signer:
    """Stands in for AWS's signer, which wants an account."""

    @staticmethod
    def generate_auth_token(region: str) -> tuple[str, int]:
        return f"signed-for-{region}", 2_000_000

    @staticmethod
    def generate_auth_token_from_profile(region: str, profile: str) -> tuple[str, int]:
        return f"signed-for-{region}-{profile}", 2_000_000

    @staticmethod
    def generate_auth_token_from_role_arn(region: str, role: str) -> tuple[str, int]:
        raise OSError("no credentials")


@pytest.fixture
def signer(monkeypatch: pytest.MonkeyPatch, at: Callable[[float], None]) -> None:
    module = types.ModuleType("aws_msk_iam_sasl_signer")
    module.__dict__["MSKAuthTokenProvider"] = Signer
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", module)


@pytest.mark.usefixtures("signer")
def test_a_token_of_msk_is_for_its_region() -> None:
    msk = {**SASL, "security.protocol": "SASL_SSL", "sasl.oauthbearer.method": "msk-iam"}
    host = "b-1.x.y.kafka.eu-west-1.amazonaws.com:9098"
    assert token_source({**msk, "bootstrap.servers": host}).token() == Token("signed-for-eu-west-1", 2_000.0)
    stated = {**msk, "sasl.oauthbearer.config": "region=us-east-2 profile=prod"}
    assert token_source(stated).token().value == "signed-for-us-east-2-prod"
    with pytest.raises(ConfigurationError, match="region of the MSK cluster"):
        token_source(msk)
    with pytest.raises(ConfigurationError, match="AWS gave no token for MSK in us-east-2: OSError: no credentials"):
        token_source({**msk, "sasl.oauthbearer.config": "region=us-east-2,role=arn"}).token()


@pytest.mark.usefixtures("signer")
def test_a_token_of_msk_goes_over_tls_only_also_where_another_client_has_it() -> None:
    given = {**SASL, "sasl.oauthbearer.method": "msk-iam", "sasl.oauthbearer.config": "region=us-east-1"}
    assert token_source({**given, "security.protocol": "SASL_SSL"}).token().value == "signed-for-us-east-1"
    with pytest.raises(ConfigurationError, match="without TLS"):
        token_source({**given, "security.protocol": "SASL_PLAINTEXT"})


def test_a_token_of_google_carries_its_access_token(at: Callable[[float], None]) -> None:
    expiry = datetime.datetime.fromtimestamp(4_600, tz=datetime.UTC).replace(tzinfo=None)
    credentials = SimpleNamespace(token="ya29.abc", expiry=expiry, service_account_email="me@project")
    token = google_token(credentials)
    header, _, access = (base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in token.value.split("."))
    assert json.loads(header) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    assert access == b"ya29.abc"
    said = claims(token.value)
    assert (said["exp"], said["iat"], said["sub"], said["scope"]) == (4_600, 1_000, "me@project", "kafka")
    assert (token.expires_at, token.principal) == (4_600, "me@project")
