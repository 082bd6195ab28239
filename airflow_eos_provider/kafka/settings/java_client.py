"""A Java client's properties in librdkafka's names: ``client.properties``, or a worker's own file with a prefix.

Settings that decide a connection are translated. Settings that only tune a Java client are left out. A security setting
without a counterpart is refused by name: without it, the client would connect to something else, or as another
principal. Files are not read here; stores are, where a client is made (``key_stores.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.settings.jaas import Login, parse_login
from airflow_eos_provider.redaction import remember

#: Java's name -> librdkafka's, where the value stays.
_SAME_VALUE = {
    "bootstrap.servers": "bootstrap.servers",
    "client.id": "client.id",
    "connections.max.idle.ms": "connections.max.idle.ms",
    "metadata.max.age.ms": "metadata.max.age.ms",
    "metadata.recovery.strategy": "metadata.recovery.strategy",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
    "reconnect.backoff.ms": "reconnect.backoff.ms",
    "request.timeout.ms": "socket.timeout.ms",
    "retry.backoff.max.ms": "retry.backoff.max.ms",
    "retry.backoff.ms": "retry.backoff.ms",
    "sasl.kerberos.service.name": "sasl.kerberos.service.name",
    "sasl.mechanism": "sasl.mechanism",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope": "sasl.oauthbearer.scope",
    "sasl.oauthbearer.sub.claim.name": "sasl.oauthbearer.sub.claim.name",
    "sasl.oauthbearer.token.endpoint.url": "sasl.oauthbearer.token.endpoint.url",
    "security.protocol": "security.protocol",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
    "ssl.key.password": "ssl.key.password",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.location": "ssl.keystore.location",
    "ssl.keystore.password": "ssl.keystore.password",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.truststore.location": "ssl.truststore.location",
    "ssl.truststore.password": "ssl.truststore.password",
}

#: A key or a certificate as Java reads it from a file of properties: line ends may be spaces, or not be there at all.
_PEM = re.compile(r"-----BEGIN (?P<kind>[A-Z0-9 ]+)-----(?P<content>[A-Za-z0-9+/=\s]++)-----END (?P=kind)-----\s*")

_PEM_NAMES = ("ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.truststore.certificates")

#: Security settings that may be left out: of the JVM's own parts, of renewals in time, or of brokers.
_LEFT_OUT = frozenset(
    {
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.scope.claim.name",
        "ssl.keymanager.algorithm",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    }
)

#: A value that changes nothing, of settings that otherwise cannot be kept.
_DEFAULTS = {
    "sasl.oauthbearer.header.urlencode": ("false",),
    "sasl.oauthbearer.jwt.retriever.class": (
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever",
    ),
    "sasl.oauthbearer.jwt.validator.class": (
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "org.apache.kafka.common.security.oauthbearer.ClientJwtValidator",
    ),
    "security.providers": (),
    "ssl.engine.factory.class": ("org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",),
    "ssl.protocol": ("TLS", "TLSv1.2", "TLSv1.3"),
}

_SECURITY = ("sasl.", "ssl.", "security.")

#: Callback handlers, and the method of ``sasl.oauthbearer.method`` that does the same. Whole names: what an own
#: class of the same name does, nobody knows here.
_HANDLERS = {
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler": "oidc",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler": "oidc",  # of Kafka 3
    "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler": "oidc",
    "software.amazon.msk.auth.iam.IAMClientCallbackHandler": "msk-iam",
    "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler": "msk-iam",
    "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler": "google",
}

_HANDLER_NAMES = ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class")

#: Options of a JAAS line for tokens, Kafka's and Strimzi's.
_TOKEN_OPTIONS = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
    "oauth.client.id": "sasl.oauthbearer.client.id",
    "oauth.client.secret": "sasl.oauthbearer.client.secret",
    "oauth.scope": "sasl.oauthbearer.scope",
    "oauth.token.endpoint.uri": "sasl.oauthbearer.token.endpoint.url",
}

_ENDPOINT_TRUST = {
    f"{by}ssl.truststore.{part}": part for by in ("", "oauth.") for part in ("location", "password", "type")
}

#: A SASL extension in a JAAS line (KIP-342).
_EXTENSION = "extension_"


def from_java(properties: Mapping[str, str], prefix: str = "") -> dict[str, str]:
    """The same connection in librdkafka's names.

    :param properties: of a Java client; or of a Connect worker, with the prefix of one kind of its clients.
    :param prefix: ``producer.``, ``consumer.`` or ``admin.``: of the rest only the addresses count, as in Connect.
    :raises ConfigurationError: a security setting cannot be kept; with its name, and never with a secret.
    """
    given = {name.removeprefix(prefix): value.strip() for name, value in properties.items() if name.startswith(prefix)}
    if prefix and "bootstrap.servers" in properties:
        given.setdefault("bootstrap.servers", properties["bootstrap.servers"])
    given |= {name: _PEM.sub(_in_lines, given[name]) for name in _PEM_NAMES if name in given}
    remember(given)
    _require_no_references(properties, given)
    found = {
        _SAME_VALUE[name]: value for name, value in given.items() if name in _SAME_VALUE and value not in ("", "-1")
    }
    handled = {*_SAME_VALUE, *_LEFT_OUT, *_HANDLER_NAMES, "sasl.jaas.config"}
    for name, value in given.items():
        if name in _SPECIAL:
            found |= _SPECIAL[name](value)
        elif name.startswith(_SECURITY) and name not in handled and value and value not in _DEFAULTS.get(name, ()):
            raise _cannot_keep(name)
    _require_one_kind_of_stores(given)
    if found.get("security.protocol", "").upper().startswith("SASL_"):
        found = _with_login(found, given)
    return found


def _with_login(found: dict[str, str], given: Mapping[str, str]) -> dict[str, str]:
    method = _method(given)
    line = given.get("sasl.jaas.config")
    mechanism = found.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism == "AWS_MSK_IAM" or method in ("msk-iam", "google"):
        config = _msk_options(parse_login(line)) if line and method != "google" else ""
        kept = {name: value for name, value in found.items() if not name.startswith("sasl.")}
        found = {**kept, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": method or "msk-iam"}
        return {**found, "sasl.oauthbearer.config": config} if config else found
    if line:
        found = {**found, **_login(parse_login(line), mechanism)}
    elif mechanism not in ("GSSAPI", "OAUTHBEARER"):
        raise ConfigurationError(
            f"For {mechanism} there is no sasl.jaas.config.",
            remedy="Write the login into the file; only a JVM reads java.security.auth.login.config.",
        )
    if mechanism == "OAUTHBEARER":
        found["sasl.oauthbearer.method"] = "oidc"
    return found


def _method(given: Mapping[str, str]) -> str | None:
    """The method that the callback handlers stand for."""
    found = None
    for name in _HANDLER_NAMES:
        if not given.get(name):
            continue
        found = _HANDLERS.get(given[name])
        if found is None:
            raise _cannot_keep(name)
    return found


def _login(login: Login, mechanism: str) -> dict[str, str]:
    if login.module == "PlainLoginModule" and mechanism == "PLAIN":
        return _password(login)
    if login.module == "ScramLoginModule" and mechanism.startswith("SCRAM-SHA-"):
        if login.flag("tokenauth"):
            raise _cannot_keep("sasl.jaas.config", "it logs in with a delegation token")
        return _password(login)
    if login.module == "OAuthBearerLoginModule" and mechanism == "OAUTHBEARER":
        return _tokens(login)
    if login.module == "Krb5LoginModule" and mechanism == "GSSAPI":
        options = {"keyTab": "sasl.kerberos.keytab", "principal": "sasl.kerberos.principal"}
        options["serviceName"] = "sasl.kerberos.service.name"
        return {options[name]: value for name, value in login.options.items() if name in options}
    raise _cannot_keep("sasl.jaas.config", f"{login.module} is no login for {mechanism}")


def _password(login: Login) -> dict[str, str]:
    if not (login.options.get("username") and login.options.get("password")):
        raise ConfigurationError("sasl.jaas.config has no username or no password.")
    return _remembered({"sasl.username": login.options["username"], "sasl.password": login.options["password"]})


def _tokens(login: Login) -> dict[str, str]:
    extensions = {
        name.removeprefix(_EXTENSION): value for name, value in login.options.items() if name.startswith(_EXTENSION)
    }
    known = (*_TOKEN_OPTIONS, *_ENDPOINT_TRUST)
    left = [name for name in login.options if name not in known and not name.startswith(_EXTENSION)]
    if left:
        raise _cannot_keep("sasl.jaas.config", f"its option {left[0]} has no counterpart")
    found = {_TOKEN_OPTIONS[name]: value for name, value in login.options.items() if name in _TOKEN_OPTIONS}
    found |= _trust_of_endpoint(login)
    if extensions:
        found["sasl.oauthbearer.extensions"] = ",".join(f"{name}={value}" for name, value in extensions.items())
    return _remembered(found)


def _trust_of_endpoint(login: Login) -> dict[str, str]:
    """Whom a token endpoint's certificate may come from; in the JAAS line that is apart from the brokers'."""
    stated = {_ENDPOINT_TRUST[name]: value for name, value in login.options.items() if name in _ENDPOINT_TRUST}
    if stated.get("location") and stated.get("type", "").upper() != "PEM":
        raise _cannot_keep("sasl.jaas.config", "the trust store of its token endpoint is no PEM file")
    return {"https.ca.location": stated["location"]} if stated.get("location") else {}


def _msk_options(login: Login) -> str:
    if login.module not in ("IAMLoginModule", "OAuthBearerLoginModule"):
        raise _cannot_keep("sasl.jaas.config", f"{login.module} is no login of MSK")
    names = {"awsProfileName": "profile", "awsRoleArn": "role"}
    left = [name for name in login.options if name not in (*names, "awsDebugCreds")]
    if left:
        raise _cannot_keep("sasl.jaas.config", f"its option {left[0]} has no counterpart")
    return ",".join(f"{names[name]}={value}" for name, value in login.options.items() if name in names)


def _remembered(properties: dict[str, str]) -> dict[str, str]:
    """The same, with its secrets known: nobody else has seen them outside of the JAAS line yet."""
    remember(properties)
    return properties


def _in_lines(match: re.Match[str]) -> str:
    """A key or a certificate as all other libraries want it (RFC 7468)."""
    content = "".join(match["content"].split())
    lines = [content[at : at + 64] for at in range(0, len(content), 64)]
    return "\n".join([f"-----BEGIN {match['kind']}-----", *lines, f"-----END {match['kind']}-----", ""])


def _host_names(value: str) -> dict[str, str]:
    return {"ssl.endpoint.identification.algorithm": value.lower() or "none"}


def _tls_versions(value: str) -> dict[str, str]:
    """Both libraries offer TLS 1.2 and 1.3, so only less than that cannot be kept."""
    if value and "TLSv1.2" not in [version.strip() for version in value.split(",")]:
        raise _cannot_keep("ssl.enabled.protocols", "TLS 1.2 is offered too")
    return {}


def _store_type(name: str) -> Callable[[str], dict[str, str]]:
    def check(value: str) -> dict[str, str]:
        # What a store is, its first bytes say: Java opens PKCS12 under the name JKS too.
        if value.upper() not in ("", "JKS", "PKCS12", "PEM"):
            raise _cannot_keep(name, f"only PKCS12 and PEM are read, not {value}")
        return {}

    return check


def _buffer(name: str) -> Callable[[str], dict[str, str]]:
    return lambda value: {} if value in ("", "-1") else {name: value}


def _look_up(value: str) -> dict[str, str]:
    return {} if value in ("", "default") else {"client.dns.lookup": value}


#: Names whose values are not librdkafka's.
_SPECIAL: dict[str, Callable[[str], dict[str, str]]] = {
    "client.dns.lookup": _look_up,
    "receive.buffer.bytes": _buffer("socket.receive.buffer.bytes"),
    "send.buffer.bytes": _buffer("socket.send.buffer.bytes"),
    "ssl.enabled.protocols": _tls_versions,
    "ssl.endpoint.identification.algorithm": _host_names,
    "ssl.keystore.type": _store_type("ssl.keystore.type"),
    "ssl.truststore.type": _store_type("ssl.truststore.type"),
}


def _require_no_references(properties: Mapping[str, str], given: Mapping[str, str]) -> None:
    """A config provider gives values to Java alone."""
    providers = [name.strip() for name in properties.get("config.providers", "").split(",") if name.strip()]
    for name, value in given.items():
        if (name in _SAME_VALUE or name.startswith(_SECURITY)) and any(
            "${" + each + ":" in value for each in providers
        ):
            raise ConfigurationError(
                f"{name} gets its value from a config provider, which only Java asks.",
                remedy=f"Write the value into a file of client properties for its owner alone, without {name}=${{…}}.",
            )


def _require_one_kind_of_stores(given: Mapping[str, str]) -> None:
    if given.get("ssl.keystore.location") and given.get("ssl.keystore.key"):
        raise ConfigurationError("There is a key in ssl.keystore.location and another in ssl.keystore.key.")


def _cannot_keep(name: str, why: str = "") -> ConfigurationError:
    return ConfigurationError(
        f"The Java client's setting {name} cannot be kept{': ' + why if why else ''}.",
        remedy="Use librdkafka's names, or remove the setting from a copy; see docs/connect/security.md.",
    )
