"""The secured lab's certificates, by the handshakes that they allow and refuse."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tests.lab.certificates import Authority, Identity

PASSWORD = "store-password"


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """TLS between both, in memory; the server's side of it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname=host),
    ]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
    assert not waiting
    return ends[0]


def server_of(authority: Authority, identity: Identity) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate))
    context.load_cert_chain(identity.certificate, identity.key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # the client's certificate is judged within the handshake
    return context


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_server_and_client_trust_each_other_by_their_authority(tmp_path: Path, host: str) -> None:
    authority = Authority(tmp_path / "security", PASSWORD)
    client = ssl.create_default_context(cafile=str(authority.certificate))
    client_identity = authority.issue("eos")
    client.load_cert_chain(client_identity.certificate, client_identity.key)
    seen = handshake(server_of(authority, authority.issue("broker")), client, host).getpeercert()
    assert seen is not None
    assert (("commonName", "eos"),) in seen["subject"]


def test_whoever_is_signed_by_another_authority_is_refused(tmp_path: Path) -> None:
    ours, another = Authority(tmp_path / "ours", PASSWORD), Authority(tmp_path / "another", PASSWORD)
    client = ssl.create_default_context(cafile=str(ours.certificate))
    impostor = another.issue("eos")
    client.load_cert_chain(impostor.certificate, impostor.key)
    with pytest.raises(ssl.SSLError, match="verify failed"):
        handshake(server_of(ours, ours.issue("broker")), client, "127.0.0.1")
    with pytest.raises(ssl.SSLError, match="verify failed"):
        handshake(server_of(another, another.issue("broker")), ssl.create_default_context(), "127.0.0.1")


def test_a_certificate_is_for_the_loopback_interface_only(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "security", PASSWORD)
    client = ssl.create_default_context(cafile=str(authority.certificate))
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server_of(authority, authority.issue("broker")), client, "kafka.example.com")


def test_keys_and_stores_are_for_their_owner_only(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "security", PASSWORD)
    identity = authority.issue("broker")
    assert authority.folder.stat().st_mode & 0o777 == 0o700
    for file in (identity.key, identity.keystore, authority.truststore):
        assert file.stat().st_mode & 0o777 == 0o600, file
    assert "PRIVATE KEY" not in identity.certificate.read_text()
