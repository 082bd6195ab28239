"""Tokens for SASL/OAUTHBEARER: where they come from, and one place that keeps each until it is to be renewed.

``sasl.oauthbearer.method`` says where from: ``oidc`` (client credentials, RFC 6749 §4.4), ``msk-iam`` and ``google``,
which are ours and need the signer library of the cloud; or ``oauth_cb`` names a function as confluent-kafka wants it.
librdkafka gets its OIDC tokens itself. All else, and kafka-python in every case, is served from here.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import importlib
import json
import logging
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.redaction import remember_values

logger = logging.getLogger(__name__)

#: Values of ``sasl.oauthbearer.method`` that librdkafka does not know.
OUR_METHODS = ("msk-iam", "google")

#: The properties that decide about a token, besides those that begin with ``sasl.oauthbearer.``.
_OTHER_NAMES = ("bootstrap.servers", "https.ca.location", "https.ca.pem", "oauth_cb", "security.protocol")

#: A token is renewed when this part of its life is over, as librdkafka does.
_RENEWED_AFTER = 0.8

#: Limit of one question to a token endpoint, seconds: the brokers wait no longer for a login that has begun.
_ANSWER_SECONDS = 10.0

#: After a renewal that failed, the next one is tried this much later, seconds: each may wait for its answer, and
#: whoever logs in meanwhile has a token that is valid.
_NEXT_RENEWAL_SECONDS = 15.0

#: Where an issuer does not say how long a token lives, seconds.
_UNSTATED_LIFE = 300.0

#: The region of a cluster of Amazon MSK, in the names of its brokers.
_MSK_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?::\d+)?$", re.IGNORECASE)

#: A part of the names of brokers of Google's Managed Service for Apache Kafka.
_GOOGLE_HOST = re.compile(r"\bmanagedkafka\b.{0,255}\.cloud\.goog(?::\d+)?$", re.IGNORECASE)

_CLOUD = "https://www.googleapis.com/auth/cloud-platform"


@dataclass(frozen=True, slots=True)
class Token:
    """One token.

    :param expires_at: seconds since the epoch.
    :param principal: whom it names, for librdkafka's log; may be empty.
    """

    value: str = field(repr=False)
    expires_at: float
    principal: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)


class TokenSource:
    """Gives a token, and keeps it until it is to be renewed. For several threads."""

    def __init__(self, fetch: Callable[[], Token]) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._renewed_at = 0.0

    def token(self) -> Token:
        """A token that is valid. One that could not be renewed in time is given as long as it lives."""
        with self._lock:
            now = time.time()
            if self._token is None or now >= self._renewed_at:
                self._renew(now)
            assert self._token is not None
            return self._token

    def _renew(self, now: float) -> None:
        try:
            token = self._fetch()
        except EosError as error:
            if self._token is None or now >= self._token.expires_at:
                raise
            logger.warning("The token for the Kafka brokers could not be renewed yet: %s", error.found)
            self._renewed_at = min(time.time() + _NEXT_RENEWAL_SECONDS, self._token.expires_at)
            return
        remember_values([token.value])
        self._token, self._renewed_at = token, now + _RENEWED_AFTER * (token.expires_at - now)


_sources: dict[tuple[tuple[str, str], ...], TokenSource] = {}
_sources_lock = threading.Lock()


def token_source(properties: Mapping[str, str]) -> TokenSource:
    """The source of tokens of these client properties, one for all clients of a process."""
    key = tuple(sorted((n, v) for n, v in properties.items() if n in _OTHER_NAMES or n.startswith("sasl.oauthbearer.")))
    with _sources_lock:
        if key not in _sources:
            _sources[key] = TokenSource(_fetch_of(properties))
        return _sources[key]


def method_of(properties: Mapping[str, str]) -> str:
    """Where tokens come from: ``oauth_cb``, ``oidc``, one of :data:`OUR_METHODS`, or ``default``."""
    if properties.get("oauth_cb"):
        return "oauth_cb"
    return properties.get("sasl.oauthbearer.method", "default").lower()


def cloud_method(bootstrap_servers: str) -> str | None:
    """The method for clusters of a cloud, where the names of all brokers tell it: each gets the token."""
    addresses = [address.strip() for address in bootstrap_servers.split(",") if address.strip()]
    for method, host in (("msk-iam", _MSK_HOST), ("google", _GOOGLE_HOST)):
        if addresses and all(map(host.search, addresses)):
            return method
    return None


def asks_token_endpoint(properties: Mapping[str, str]) -> bool:
    """Whether tokens come from a token endpoint for client credentials alone."""
    return (
        method_of(properties) == "oidc"
        and properties.get("sasl.oauthbearer.grant.type", "client_credentials") == "client_credentials"
        and properties.get("sasl.oauthbearer.metadata.authentication.type", "none") == "none"
    )


def _fetch_of(properties: Mapping[str, str]) -> Callable[[], Token]:
    method = method_of(properties)
    if method == "oauth_cb":
        return _from_function(properties["oauth_cb"], properties.get("sasl.oauthbearer.config", ""))
    if asks_token_endpoint(properties):
        return _from_endpoint(properties)
    if method == "msk-iam":
        return _from_msk(properties)
    if method == "google":
        return _from_google(properties)
    raise ConfigurationError(
        f"Control messages cannot get tokens with sasl.oauthbearer.method={method} and its grant.",
        expected="sasl.oauthbearer.method=oidc with client credentials, msk-iam or google; or oauth_cb",
        remedy="See docs/connect/security.md for what works in both client libraries.",
    )


def _from_endpoint(properties: Mapping[str, str]) -> Callable[[], Token]:
    def setting(*names: str) -> str:
        return next((properties[name] for name in names if properties.get(name)), "")

    url = setting("sasl.oauthbearer.token.endpoint.url")
    client_id = setting("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id")
    secret = setting("sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret")
    if not (url and client_id and secret):
        raise ConfigurationError(
            "For sasl.oauthbearer.method=oidc something is missing.",
            expected="sasl.oauthbearer.token.endpoint.url, sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret",
        )
    form = {"grant_type": "client_credentials"}
    if setting("sasl.oauthbearer.scope"):
        form["scope"] = setting("sasl.oauthbearer.scope")
    ask = partial(_ask_endpoint, url, (client_id, secret), form, _trusted(properties))
    return partial(_from_answer, ask, url, _pairs(setting("sasl.oauthbearer.extensions"), ","))


def _trusted(properties: Mapping[str, str]) -> Callable[[], ssl.SSLContext]:
    """The authorities of a token endpoint, read at each question: they may be renewed meanwhile."""

    def context() -> ssl.SSLContext:
        place = properties.get("https.ca.location") or None
        pem = properties.get("https.ca.pem", "").encode("ascii", "ignore").decode() or None
        try:
            if place and place != "probe":
                at = Path(place).expanduser()
                if at.is_dir():
                    return ssl.create_default_context(capath=str(at), cadata=pem)
                return ssl.create_default_context(cafile=str(at), cadata=pem)
            return ssl.create_default_context(cadata=pem)
        except OSError as error:
            raise ConfigurationError(
                f"The authorities in https.ca.location cannot be used: {error.strerror}.",
                expected="a PEM file, or a folder of them",
            ) from error

    return context


def _ask_endpoint(
    url: str, client: tuple[str, str], form: Mapping[str, str], trusted: Callable[[], ssl.SSLContext]
) -> Any:
    import httpx  # takes a while to import, and most clients have a password

    try:
        verify = trusted() if url.lower().startswith("https:") else False
        with httpx.Client(verify=verify, timeout=_ANSWER_SECONDS) as http:
            answer = http.post(url, data=dict(form), auth=client, headers={"Accept": "application/json"})
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UnreachableError(
            f"The token endpoint {url} did not answer: {str(error) or type(error).__name__}.",
            remedy="Check sasl.oauthbearer.token.endpoint.url; for its certificate, https.ca.location.",
        ) from None
    if answer.status_code >= 500 or answer.status_code == 429:
        raise UnreachableError(
            f"The token endpoint {url} answered {answer.status_code}.", remedy="See the issuer's log."
        )
    if answer.status_code != 200:
        raise ConfigurationError(
            f"The token endpoint {url} refused the client {client[0]}: {_refusal(answer.status_code, answer.text)}.",
            remedy="Check sasl.oauthbearer.client.id, client.secret and scope.",
        )
    with contextlib.suppress(ValueError):
        return answer.json()
    return None


def _refusal(status: int, text: str) -> str:
    """Status and code of a refusal (RFC 6749 §5.2)."""
    with contextlib.suppress(ValueError):
        said = json.loads(text)
        if isinstance(said, Mapping) and said.get("error"):
            return f"{status} " + " ".join(str(said[key]) for key in ("error", "error_description") if said.get(key))
    return str(status)


def _from_answer(ask: Callable[[], Any], url: str, extensions: Mapping[str, str]) -> Token:
    asked_at = time.time()
    answer = ask()
    value = answer.get("access_token") if isinstance(answer, Mapping) else None
    if not value:
        raise ConfigurationError(
            f"The answer of {url} holds no access_token.", remedy="Check sasl.oauthbearer.token.endpoint.url."
        )
    claims = _claims(str(value))
    life = answer.get("expires_in")
    stated = asked_at + (float(life) if isinstance(life, int | float) else _UNSTATED_LIFE)
    expires_at = claims.get("exp")
    return Token(
        str(value),
        float(expires_at) if isinstance(expires_at, int | float) else stated,
        str(claims.get("sub", "")),
        extensions,
    )


def _claims(token: str) -> Mapping[str, Any]:
    """What a JSON web token says of itself, unverified; nothing of a token that is none."""
    parts = token.split(".")
    if len(parts) == 3:
        with contextlib.suppress(ValueError, binascii.Error):
            claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
            if isinstance(claims, dict):
                return claims
    return {}


def _from_function(path: str, config: str) -> Callable[[], Token]:
    module, _, name = path.rpartition(".")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"The function that oauth_cb names cannot be loaded: {error}.",
            expected="package.module.function",
            remedy="Make its module importable in every process with a client: with Spark on every executor, too.",
        ) from error
    if not callable(function):
        raise ConfigurationError(f"oauth_cb names {path}, which is no function.")

    def fetch() -> Token:
        try:
            answer = function(config)
            value, expires_at, *more = answer
            extensions = dict(more[1]) if len(more) > 1 else {}
            return Token(str(value), float(expires_at), str(more[0]) if more else "", extensions)
        except EosError:
            raise
        except Exception as error:  # whatever the function does
            raise UnreachableError(
                f"The function {path} (oauth_cb) failed: {type(error).__name__}: {error}.",
                expected="(token, seconds since the epoch when it expires[, principal[, extensions]])",
            ) from error

    return fetch


def _from_msk(properties: Mapping[str, str]) -> Callable[[], Token]:
    """Brokers of MSK may have names of their owner's, so any get this token, over TLS: whoever has it can log in."""
    if properties.get("security.protocol", "").upper() != "SASL_SSL":
        raise ConfigurationError(
            "sasl.oauthbearer.method=msk-iam would send a token of AWS without TLS.",
            expected="security.protocol=SASL_SSL",
        )
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    except ImportError as error:
        raise _library_missing("msk-iam", "aws-msk-iam-sasl-signer-python") from error
    options = _pairs(properties.get("sasl.oauthbearer.config", ""), r"[,\s]+")
    hosts = [_MSK_HOST.search(address.strip()) for address in properties.get("bootstrap.servers", "").split(",")]
    region = options.get("region") or next((host[1].lower() for host in hosts if host), None)
    if not region:
        raise ConfigurationError(
            "The region of the MSK cluster is in none of its brokers' names.",
            remedy="Set sasl.oauthbearer.config: region=eu-central-1",
        )
    if options.get("profile"):
        sign = partial(MSKAuthTokenProvider.generate_auth_token_from_profile, region, options["profile"])
    elif options.get("role"):
        sign = partial(MSKAuthTokenProvider.generate_auth_token_from_role_arn, region, options["role"])
    else:
        sign = partial(MSKAuthTokenProvider.generate_auth_token, region)

    def fetch() -> Token:
        try:
            value, expires_at_ms = sign()
        except Exception as error:  # botocore's have no base that is promised
            raise ConfigurationError(
                f"AWS gave no token for MSK in {region}: {type(error).__name__}: {error}.",
                remedy="Check the AWS credentials of this process (environment, profile, role).",
            ) from error
        return Token(value, expires_at_ms / 1000)

    return fetch


def _from_google(properties: Mapping[str, str]) -> Callable[[], Token]:
    """Only brokers of Google get this token, and only over TLS: it opens more than Kafka."""
    is_google = cloud_method(properties.get("bootstrap.servers", "")) == "google"
    if not is_google or properties.get("security.protocol", "").upper() != "SASL_SSL":
        raise ConfigurationError(
            "sasl.oauthbearer.method=google would send a Google Cloud token to brokers that are not Google's.",
            expected="security.protocol=SASL_SSL, and brokers of the managed service (….managedkafka.….cloud.goog)",
        )
    try:
        import google.auth
        import google.auth.exceptions
        from google.auth.transport.requests import Request
    except ImportError as error:
        raise _library_missing("google", "google-auth[requests]") from error

    def fetch() -> Token:
        try:
            credentials, _ = google.auth.default(scopes=[_CLOUD])
            credentials.refresh(Request())
        except google.auth.exceptions.GoogleAuthError as error:
            raise ConfigurationError(
                f"The login at Google failed: {error}.",
                remedy="Check the application default credentials of this process.",
            ) from error
        return google_token(credentials)

    return fetch


def google_token(credentials: Any) -> Token:
    """A token of Google's managed Kafka: its access token in the third part of what looks like a JSON web token.

    :param credentials: of google-auth, refreshed; its ``expiry`` is in UTC and says so nowhere.
    """
    import datetime

    expires_at = credentials.expiry.replace(tzinfo=datetime.UTC).timestamp()
    owner = str(getattr(credentials, "service_account_email", ""))
    header = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    claims = {"exp": expires_at, "iss": "Google", "iat": time.time(), "scope": "kafka", "sub": owner}
    parts = (json.dumps(header), json.dumps(claims), str(credentials.token))
    value = ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)
    return Token(value, expires_at, owner)


def _library_missing(extra: str, library: str) -> ConfigurationError:
    return ConfigurationError(
        f"sasl.oauthbearer.method={extra} needs a library that is not installed: {library}.",
        remedy=f'pip install "airflow-eos-provider[{extra}]"',
    )


def _pairs(text: str, separator: str) -> dict[str, str]:
    """``a=1,b=2`` -> ``{"a": "1", "b": "2"}``."""
    entries = (entry.strip().partition("=") for entry in re.split(separator, text))
    return {name.strip(): value.strip() for name, equals, value in entries if equals}
