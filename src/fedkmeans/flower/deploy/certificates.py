"""Keys and certificates of a federation: its own authority, the server's certificate, the sites' keys.

Sites recognize the server by a certificate that the federation's own authority signs. The server recognizes
a site by its public key. No other authority is trusted, and no password is needed. All keys are on the curve
P-384, which Flower requires for its nodes.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedkmeans.errors import ParameterError

AUTHORITY_DAYS, SERVER_DAYS = 3650, 365
# Clocks differ, so a certificate is valid from a little before it was created.
_BEFORE = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Certified:
    """A private key and the certificate of its public key, both in PEM."""

    key: bytes
    certificate: bytes

    def __repr__(self) -> str:
        return "Certified(…)"


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new private key."""
    return ec.generate_private_key(ec.SECP384R1())


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Write a private key as PEM, without a password."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def site_private(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Write a site's private key in the format that Flower's SuperNode reads."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )


def site_public(key: ec.EllipticCurvePublicKey) -> bytes:
    """Write a site's public key in the format that Flower registers."""
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH) + b"\n"


def read_site_public(data: bytes, where: str) -> bytes:
    """Return a site's public key as `site_public` writes it; raise if data is none."""
    try:
        key = serialization.load_ssh_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ParameterError(f"{where} holds no public key in OpenSSH's format: {error}.") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise ParameterError(
            f"{where} is no key on the curve P-384; make one with: ssh-keygen -t ecdsa -b 384"
        )
    return site_public(key)


def check_site_private(data: bytes, where: str) -> None:
    """Raise unless data is a site's private key that Flower's SuperNode can read."""
    try:
        key = serialization.load_ssh_private_key(data, password=None)
    except TypeError:
        raise ParameterError(
            f"{where} is locked by a password, which nobody could type when the site connects again; take it "
            "off with: ssh-keygen -p"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise ParameterError(
            f"{where} is no private key in OpenSSH's format; make one with: ssh-keygen -t ecdsa -b 384"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP384R1):
        raise ParameterError(
            f"{where} is no key on the curve P-384; make one with: ssh-keygen -t ecdsa -b 384"
        )


def check_certificate(data: bytes, where: str) -> None:
    """Raise unless data is a certificate."""
    try:
        x509.load_pem_x509_certificate(data)
    except ValueError:
        raise ParameterError(f"{where} is no certificate; ask for the join file again") from None


def new_authority(name: str) -> Certified:
    """Return the key and certificate of a new authority."""
    key, subject = new_key(), _name(f"{name} authority")
    certificate = (
        _builder(subject, subject, key.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )
    return Certified(private_pem(key), certificate.public_bytes(serialization.Encoding.PEM))


def new_server(authority: Certified, hosts: Sequence[str], days: float = SERVER_DAYS) -> Certified:
    """Return a new key and certificate of a server, valid for these host names and addresses."""
    issuer_key = serialization.load_pem_private_key(authority.key, password=None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    key = new_key()
    certificate = (
        _builder(_name(hosts[0]), issuer.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
        .sign(issuer_key, hashes.SHA384())
    )
    return Certified(private_pem(key), certificate.public_bytes(serialization.Encoding.PEM))


def days_left(certificate: bytes) -> float:
    """Return for how many days a certificate is still valid; negative once it has expired."""
    until = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    return (until - dt.datetime.now(dt.UTC)) / dt.timedelta(days=1)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: float
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    start = now - _BEFORE if days > 0 else now + dt.timedelta(days=days) - _BEFORE
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
