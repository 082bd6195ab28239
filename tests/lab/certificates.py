"""The secured lab's certificates: an authority of its own and what it signs, made when the lab is made.

Clients in Python and librdkafka take PEM files, Java takes PKCS12 stores (RFC 7292). Nothing of it is worth keeping
longer than the lab: the keys lie in its folder, readable by its owner only, and end with it.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: A lab is taken down long before.
VALID_DAYS = 365

#: Clocks of containers and hosts differ by seconds.
_BACKDATED = datetime.timedelta(minutes=5)

#: Of hashing a store's password, 20,000 by default. A broker opens some twenty stores while it starts, which takes half
#: of its CPU then. The keys lie beside the stores in plain text, so nobody guesses a password here.
_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class Identity:
    """The files of one certificate."""

    folder: Path
    name: str

    @property
    def certificate(self) -> Path:
        """PEM: the certificate, then the authority's."""
        return self.folder / f"{self.name}.pem"

    @property
    def key(self) -> Path:
        """PEM (PKCS8), not encrypted, mode 0600."""
        return self.folder / f"{self.name}.key"

    @property
    def keystore(self) -> Path:
        """PKCS12: key and chain, for Java; the password is that of :class:`Authority`."""
        return self.folder / f"{self.name}.p12"


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path, store_password: str) -> None:
        self.folder = folder
        self._password = _encryption(store_password)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._signed("Lab authority", self._key.public_key(), is_authority=True)
        _write(self.certificate, self._certificate.public_bytes(serialization.Encoding.PEM), private=False)
        store = pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(self._certificate, b"lab")], encryption_algorithm=self._password
        )
        _write(self.truststore, store)

    @property
    def certificate(self) -> Path:
        """PEM: whom clients in Python and librdkafka trust."""
        return ca_file(self.folder)

    @property
    def truststore(self) -> Path:
        """PKCS12: whom Java trusts."""
        return trust_file(self.folder)

    def issue(self, name: str, addresses: Sequence[str] = ("127.0.0.1",)) -> Identity:
        """Make a key and a certificate, for servers on the loopback interface and for clients alike."""
        identity = Identity(self.folder, name)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(name, key.public_key(), addresses)
        pem = serialization.Encoding.PEM
        chain = certificate.public_bytes(pem) + self._certificate.public_bytes(pem)
        _write(identity.certificate, chain, private=False)
        plain = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        _write(identity.key, plain)
        store = pkcs12.serialize_key_and_certificates(
            name.encode(), key, certificate, [self._certificate], self._password
        )
        _write(identity.keystore, store)
        return identity

    def _signed(
        self, name: str, key: ec.EllipticCurvePublicKey, addresses: Sequence[str] = (), *, is_authority: bool = False
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        subject = _name(name)
        issuer = subject if is_authority else self._certificate.subject
        building = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACKDATED)
            .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if is_authority:
            building = building.add_extension(_usage(signs=True), critical=True)
        else:
            loopback = [x509.DNSName("localhost"), *(x509.IPAddress(ipaddress.ip_address(one)) for one in addresses)]
            both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            building = (
                building.add_extension(x509.SubjectAlternativeName(loopback), critical=False)
                .add_extension(x509.ExtendedKeyUsage(both), critical=False)
                .add_extension(_usage(signs=False), critical=True)
            )
        return building.sign(self._key, hashes.SHA256())


def ca_file(folder: Path) -> Path:
    """The authority's certificate in a folder (PEM)."""
    return folder / "ca.pem"


def trust_file(folder: Path) -> Path:
    """The store with the authority's certificate in a folder (PKCS12)."""
    return folder / "trust.p12"


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _encryption(password: str) -> serialization.KeySerializationEncryption:
    builder = serialization.PrivateFormat.PKCS12.encryption_builder()
    return builder.kdf_rounds(_ROUNDS).key_cert_algorithm(pkcs12.PBES.PBESv2SHA256AndAES256CBC).build(password.encode())


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write(path: Path, content: bytes, *, private: bool = True) -> None:
    path.touch(mode=0o600 if private else 0o644)
    path.write_bytes(content)
