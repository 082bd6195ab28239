"""Client properties for librdkafka: its own names stay, our names and Java's are translated."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from airflow_eos_provider.kafka.settings.key_stores import is_pem, trusted_certificates
from airflow_eos_provider.kafka.settings.tokens import (
    OUR_METHODS,
    TokenSource,
    asks_token_endpoint,
    method_of,
    token_source,
)

#: What librdkafka does not know; see :func:`configuration`.
_OURS = ("oauth_cb", "ssl.keystore.type", "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type")


def configuration(properties: Mapping[str, str]) -> dict[str, object]:
    """A configuration of confluent-kafka."""
    found: dict[str, object] = {name: value for name, value in properties.items() if name not in _OURS}
    if properties.get("ssl.endpoint.identification.algorithm") == "":  # Java's way to say so
        found["ssl.endpoint.identification.algorithm"] = "none"
    protocol = properties.get("security.protocol", "").upper()
    if protocol in ("SSL", "SASL_SSL"):
        _add_stores(found, properties)
    if protocol.startswith("SASL_") and "OAUTHBEARER" in (
        properties.get("sasl.mechanism", "").upper(),
        properties.get("sasl.mechanisms", "").upper(),
    ):
        _add_tokens(found, properties)
    elif properties.get("sasl.oauthbearer.method", "").lower() in OUR_METHODS:
        del found["sasl.oauthbearer.method"]
    return found


def _add_stores(found: dict[str, object], properties: Mapping[str, str]) -> None:
    trusted = properties.get("ssl.truststore.location")
    if trusted:
        pem = trusted_certificates(trusted, properties.get("ssl.truststore.password")).decode("ascii", "ignore")
        found["ssl.ca.pem"] = "\n".join(filter(None, (properties.get("ssl.ca.pem"), pem)))
    own = properties.get("ssl.keystore.location")
    if own and is_pem(own):
        del found["ssl.keystore.location"]
        found.pop("ssl.keystore.password", None)
        found |= {"ssl.certificate.location": own, "ssl.key.location": own}


def _add_tokens(found: dict[str, object], properties: Mapping[str, str]) -> None:
    method = method_of(properties)
    if method not in ("oauth_cb", *OUR_METHODS) and not asks_token_endpoint(properties):
        return  # librdkafka's own affair
    source = token_source(properties)
    source.token()  # a refusal is reported here, in words; librdkafka would try on and time out
    if method != "oidc":
        found.pop("sasl.oauthbearer.method", None)
        found["oauth_cb"] = _callback(source)


def _callback(source: TokenSource) -> Callable[[str], tuple[str, float, str, dict[str, str]]]:
    """librdkafka calls it in a thread of its own when a token has lived for four fifths of its time."""

    def oauth_cb(_: str) -> tuple[str, float, str, dict[str, str]]:
        token = source.token()
        return token.value, token.expires_at, token.principal, dict(token.extensions)

    return oauth_cb
