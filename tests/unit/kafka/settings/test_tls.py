"""TLS of Python's clients, proven by a handshake: who is trusted, what is shown, and what is refused."""

from __future__ import annotations

import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socketpair

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.settings import key_stores, librdkafka_settings, tls
from tests.lab.certificates import Authority, Identity

PASSWORD = "st0re-pa55word"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), PASSWORD)


@pytest.fixture(scope="module")
def server(authority: Authority) -> ssl.SSLContext:
    own = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    context.load_verify_locations(authority.certificate)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


@pytest.fixture(scope="module")
def client(authority: Authority) -> Identity:
    return authority.issue("client")


def shown(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "localhost") -> str | None:
    """Whom the server takes the client for."""
    seen: list[str | None] = []
    ours, theirs = socketpair()

    def serve() -> None:
        try:
            with server.wrap_socket(theirs, server_side=True) as there:
                there.recv(1)
                certificate = there.getpeercert()
                subject = dict(pair[0] for pair in certificate["subject"]) if certificate else {}
                seen.append(subject.get("commonName"))
                there.send(b"x")
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(ours, server_hostname=name) as here:
            here.send(b"x")
            here.recv(1)
    finally:
        ours.close()
        thread.join()
    return seen[0]


def trust(authority: Authority) -> dict[str, str]:
    return {"ssl.ca.location": str(authority.certificate)}


def test_only_the_authority_that_is_named_is_trusted(server: ssl.SSLContext, authority: Authority) -> None:
    assert shown(server, tls.ssl_context(trust(authority))) is None
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        shown(server, tls.ssl_context({}))


@pytest.mark.parametrize("kind", ["text", "store", "folder"])
def test_an_authority_may_be_named_in_other_ways(
    server: ssl.SSLContext, authority: Authority, tmp_path: Path, kind: str
) -> None:
    if kind == "folder":
        command = ["openssl", "x509", "-hash", "-noout", "-in", str(authority.certificate)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        (tmp_path / f"{done.stdout.strip()}.0").write_bytes(authority.certificate.read_bytes())
    ways = {
        "text": {"ssl.ca.pem": authority.certificate.read_text()},
        "store": {"ssl.truststore.location": str(authority.truststore), "ssl.truststore.password": PASSWORD},
        "folder": {"ssl.ca.location": str(tmp_path)},
    }
    assert shown(server, tls.ssl_context(ways[kind])) is None


@pytest.mark.parametrize("kind", ["encrypted", "one file"])
def test_a_certificate_is_shown(
    server: ssl.SSLContext, authority: Authority, client: Identity, tmp_path: Path, kind: str
) -> None:
    """Two files, text and a store are shown to a real broker in tests/integration/test_client_security.py."""
    key = load_pem_private_key(client.key.read_bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"key-pa55word"))
    together = tmp_path / "both.pem"
    together.write_bytes(client.key.read_bytes() + client.certificate.read_bytes())
    ways = {
        "encrypted": {
            "ssl.certificate.location": str(client.certificate),
            "ssl.key.pem": locked.decode(),
            "ssl.key.password": "key-pa55word",
        },
        "one file": {"ssl.keystore.location": str(together)},
    }
    assert shown(server, tls.ssl_context({**trust(authority), **ways[kind]})) == "client"


def test_a_host_name_counts_unless_it_is_said_otherwise(server: ssl.SSLContext, authority: Authority) -> None:
    with pytest.raises(ssl.SSLError, match="Hostname mismatch"):
        shown(server, tls.ssl_context(trust(authority)), name="elsewhere")
    for value in ("none", ""):
        free = tls.ssl_context({**trust(authority), "ssl.endpoint.identification.algorithm": value})
        assert shown(server, free, name="elsewhere") is None
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
            shown(server, tls.ssl_context({"ssl.endpoint.identification.algorithm": value}), name="elsewhere")
    assert shown(server, tls.ssl_context({"enable.ssl.certificate.verification": "false"})) is None


@pytest.mark.parametrize("memory", [True, False])
def test_no_file_with_a_key_is_left(
    server: ssl.SSLContext,
    authority: Authority,
    client: Identity,
    memory: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)  # as on macOS
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    modes: list[int] = []
    load = ssl.SSLContext.load_cert_chain

    def watched(context: ssl.SSLContext, path: str, *more: object, **options: object) -> None:
        modes.append(Path(path).stat().st_mode & 0o077)
        assert memory != bool(list(tmp_path.iterdir()))
        load(context, path, *more, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    store = {"ssl.keystore.location": str(client.keystore), "ssl.keystore.password": PASSWORD}
    assert shown(server, tls.ssl_context({**trust(authority), **store})) == "client"
    assert list(tmp_path.iterdir()) == []
    assert memory or modes == [0]


@contextmanager
def refused(words: str) -> Iterator[None]:
    with pytest.raises(ConfigurationError, match=words) as error:
        yield
    assert PASSWORD not in str(error.value)
    assert "wr0ng" not in str(error.value)


def test_what_cannot_be_used_is_told_without_a_secret(client: Identity, tmp_path: Path) -> None:
    certificate = {"ssl.certificate.location": str(client.certificate)}
    with refused(r"ssl\.key\.location is missing"):
        tls.ssl_context(certificate)
    with refused(r"There is no file /none"):
        tls.ssl_context({"ssl.ca.location": "/none"})
    with refused(r"has another password"):
        tls.ssl_context({"ssl.keystore.location": str(client.keystore), "ssl.keystore.password": "wr0ng-one"})
    with refused(r"cannot be read: No such file"):
        tls.ssl_context({"ssl.truststore.location": "/none.p12"})
    with refused(r"ciphers of the Kafka client cannot be used"):
        tls.ssl_context({"ssl.cipher.suites": "none-such"})
    key = load_pem_private_key(client.key.read_bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode()))
    with refused(r"the key's password in ssl\.key\.password"):  # and nobody is asked on a terminal
        tls.ssl_context({**certificate, "ssl.key.pem": locked.decode()})


def test_a_jks_store_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    for name in ("ssl.truststore.location", "ssl.keystore.location"):
        properties = {"security.protocol": "SSL", name: str(store)}
        line = f"keytool -importkeystore -srckeystore {store} -destkeystore {tmp_path}/trust.p12 -deststoretype PKCS12"
        with refused(line):
            tls.ssl_context(properties)
        with refused(line):
            librdkafka_settings.configuration(properties)


def test_a_store_that_trusts_nobody_is_refused(client: Identity, authority: Authority) -> None:
    assert b"BEGIN CERTIFICATE" in key_stores.trusted_certificates(str(authority.truststore), PASSWORD)
    with refused("holds no key"):
        key_stores.key_and_certificates(str(authority.truststore), PASSWORD)


def test_librdkafka_gets_a_trust_store_as_text_and_a_key_store_as_it_is(client: Identity, authority: Authority) -> None:
    found = librdkafka_settings.configuration(
        {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(authority.truststore),
            "ssl.truststore.password": PASSWORD,
            "ssl.truststore.type": "PKCS12",
            "ssl.keystore.location": str(client.keystore),
            "ssl.keystore.password": PASSWORD,
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert str(found.pop("ssl.ca.pem")).strip() == authority.certificate.read_text().strip()
    assert found == {
        "security.protocol": "SSL",
        "ssl.keystore.location": str(client.keystore),
        "ssl.keystore.password": PASSWORD,
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_librdkafka_gets_a_pem_store_as_the_two_files_that_it_is(client: Identity, tmp_path: Path) -> None:
    together = tmp_path / "both.pem"
    together.write_bytes(client.key.read_bytes() + client.certificate.read_bytes())
    found = librdkafka_settings.configuration({"security.protocol": "SSL", "ssl.keystore.location": str(together)})
    assert found["ssl.certificate.location"] == found["ssl.key.location"] == str(together)
    assert "ssl.keystore.location" not in found
