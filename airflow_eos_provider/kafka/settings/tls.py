"""TLS of Python's clients from librdkafka's properties: an ``ssl.SSLContext`` that trusts and shows the same.

Python loads a key from a file only. So a key from the settings, or from a PKCS12 store, is briefly written to a file
without a name (``memfd``), or, if the system has none, to a file that only its owner may read.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.settings.key_stores import is_pem, key_and_certificates, trusted_certificates

#: The properties that :func:`ssl_context` understands, and in which librdkafka and Java say what is trusted and shown.
NAMES = frozenset(
    {
        "enable.ssl.certificate.verification",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.cipher.suites",
        "ssl.crl.location",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.truststore.location",
        "ssl.truststore.password",
    }
)


def ssl_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """The TLS context of these client properties.

    :param properties: librdkafka's names, and ``ssl.truststore.location`` with ``ssl.truststore.password``.
    :raises ConfigurationError: a file or a value cannot be used. No key and no password is in the error.
    """
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _trust(context, properties)
        _show(context, properties)
        if properties.get("ssl.cipher.suites"):
            context.set_ciphers(properties["ssl.cipher.suites"])
    except OSError as error:  # ssl.SSLError is one
        words = error.strerror or type(error).__name__
        raise ConfigurationError(
            f"The certificates, the key or the ciphers of the Kafka client cannot be used: {words}.",
            expected="PEM or PKCS12 in the properties that begin with ssl., the key's password in ssl.key.password",
        ) from None
    if properties.get("ssl.endpoint.identification.algorithm", "https").lower() in ("none", ""):
        context.check_hostname = False
    if properties.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _trust(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    place, pem = properties.get("ssl.ca.location"), properties.get("ssl.ca.pem")
    store = properties.get("ssl.truststore.location")
    if place and place != "probe":
        at = _there(place)
        context.load_verify_locations(**{"capath" if at.is_dir() else "cafile": str(at)})
    if pem:
        context.load_verify_locations(cadata=pem.encode("ascii", "ignore").decode())  # a comment may be in any letters
    if store:
        trusted = trusted_certificates(store, properties.get("ssl.truststore.password"))
        context.load_verify_locations(cadata=trusted.decode("ascii", "ignore"))
    if not (pem or store) and place in (None, "", "probe"):
        context.load_default_certs()
    if properties.get("ssl.crl.location"):
        context.load_verify_locations(cafile=str(_there(properties["ssl.crl.location"])))
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _show(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    """Load this client's own certificate with its key, if it has one."""
    # Without a password OpenSSL would ask for one on the terminal.
    password = properties.get("ssl.key.password", "")
    store = properties.get("ssl.keystore.location")
    if store and not is_pem(store):
        with _private_file(key_and_certificates(store, properties.get("ssl.keystore.password"))) as path:
            context.load_cert_chain(path, password="")
        return
    certificate = _pem(properties, "ssl.certificate") or (_there(store).read_bytes() if store else b"")
    key = _pem(properties, "ssl.key") or (_there(store).read_bytes() if store else b"")
    if not certificate and not key:
        return
    if not (certificate and key):
        missing = "ssl.key.location" if certificate else "ssl.certificate.location"
        raise ConfigurationError(
            f"The Kafka client has a certificate or a key without the other: {missing} is missing."
        )
    both = certificate if certificate == key else certificate + b"\n" + key
    with _private_file(both) as path:
        context.load_cert_chain(path, password=password)


def _pem(properties: Mapping[str, str], name: str) -> bytes:
    """What is in the settings themselves, else in the file that they name."""
    if properties.get(f"{name}.pem"):
        return properties[f"{name}.pem"].encode()
    place = properties.get(f"{name}.location")
    return _there(place).read_bytes() if place else b""


def _there(place: str) -> Path:
    path = Path(place).expanduser()
    if not path.exists():
        raise ConfigurationError(f"There is no file {place}, which a client property beginning with ssl. names.")
    return path


@contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """The path of a file with this content, which is gone afterwards."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("eos-key", os.MFD_CLOEXEC)
        path = f"/proc/self/fd/{descriptor}"
        remove = None
    else:
        descriptor, path = tempfile.mkstemp(prefix="eos-key-")  # mode 0600
        remove = Path(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            yield path
    finally:
        if remove is not None:
            remove.unlink()
