"""Java's key stores and trust stores, read for clients that want PEM: PKCS12 (RFC 7292), or PEM under the same name.

A JKS store has a format of its own that only Java reads; it is refused with the command that converts it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow_eos_provider.errors import ConfigurationError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

#: The first bytes of JKS and JCEKS stores.
_OF_JAVA_ALONE = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_PEM = b"-----BEGIN "


def is_pem(path: str) -> bool:
    """Whether a store is a PEM file."""
    return _PEM in _content(path)


def trusted_certificates(path: str, password: str | None) -> bytes:
    """The certificates of a trust store, as PEM."""
    content = _content(path)
    if _PEM in content:
        return content
    from cryptography.hazmat.primitives.serialization import Encoding

    trusted = [
        entry.certificate.public_bytes(Encoding.PEM) for entry in _opened(path, content, password).additional_certs
    ]
    if not trusted:
        raise ConfigurationError(
            f"The trust store {path} holds no trusted certificate.",
            remedy="Import the authority's: keytool -importcert -noprompt -alias ca -file ca.pem -keystore …",
        )
    return b"".join(trusted)


def key_and_certificates(path: str, password: str | None) -> bytes:
    """The certificate chain of a key store and its key, as PEM, the key not encrypted."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    store = _opened(path, _content(path), password)
    if store.key is None or store.cert is None:
        raise ConfigurationError(f"The key store {path} holds no key with its certificate.")
    chain = [store.cert, *store.additional_certs]
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return b"".join([*(each.certificate.public_bytes(Encoding.PEM) for each in chain), key])


def _content(path: str) -> bytes:
    try:
        content = Path(path).expanduser().read_bytes()
    except OSError as error:
        raise ConfigurationError(f"The store {path} cannot be read: {error.strerror}.") from error
    if content.startswith(_OF_JAVA_ALONE):
        converted = str(Path(path).with_suffix(".p12"))
        raise ConfigurationError(
            f"{path} is a JKS store, which only Java reads.",
            expected="a PKCS12 store, or PEM files",
            remedy=f"keytool -importkeystore -srckeystore {path} -destkeystore {converted} -deststoretype PKCS12",
        )
    return content


def _opened(path: str, content: bytes, password: str | None) -> PKCS12KeyAndCertificates:
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError as error:  # Airflow brings it; the interval writer may run where Airflow is not
        raise ConfigurationError(
            f"To read the store {path}, cryptography is needed.", remedy="pip install cryptography"
        ) from error
    try:
        return load_pkcs12(content, password.encode() if password else None)
    except ValueError as error:
        raise ConfigurationError(
            f"The store {path} cannot be opened: it is no PKCS12 store, or has another password.",
            expected="a PKCS12 store with the password in ssl.keystore.password or ssl.truststore.password",
        ) from error
