"""Keys and certificates of a federation: its own authority, the server's certificate, the sites' keys.

Sites recognize the server by a certificate that the federation's own authority signs. The server recognizes
a site by its public key. No other authority is trusted, and no password is needed. All keys are on the curve
P-384, which Flower requires for its nodes.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedkmeans.errors import ParameterError

AUTHORITY_DAYS, SERVER_DAYS = 3650, 365
# Clocks differ, so a certificate is valid from a little before it was created.
_BEFORE = dt.timedelta(hours=1)
_MAKE_ONE = "make one with: ssh-keygen -t ecdsa -b 384"
_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


@dataclass(frozen=True, slots=True)
class Certified:
    """A private key and the certificate of its public key, both in PEM."""

    key: bytes = field(repr=False)
    certificate: bytes


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new private key."""
    return ec.generate_private_key(ec.SECP384R1())


def private_pem(key: ec.EllipticCurvePrivateKey, form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    """Write a private key as PEM, without a password."""
    return key.private_bytes(Encoding.PEM, form, serialization.NoEncryption())


def site_private(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Write a site's private key in the format that Flower's SuperNode reads."""
    return private_pem(key, PrivateFormat.OpenSSH)


def site_public(key: ec.EllipticCurvePublicKey) -> bytes:
    """Write a site's public key in the format that Flower registers."""
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"


def read_site_public(data: bytes, where: str) -> bytes:
    """Return a site's public key as `site_public` writes it; raise if data is none."""
    try:
        key: Any = serialization.load_ssh_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ParameterError(f"{where} holds no public key in OpenSSH's format: {error}.") from None
    _check_curve(key, where)
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
        raise ParameterError(f"{where} is no private key in OpenSSH's format; {_MAKE_ONE}") from None
    _check_curve(key, where)


def _check_curve(key: object, where: str) -> None:
    if not isinstance(getattr(key, "curve", None), ec.SECP384R1):
        raise ParameterError(f"{where} is no key on the curve P-384; {_MAKE_ONE}")


def check_certificate(data: bytes, where: str) -> None:
    """Raise unless data is a certificate."""
    try:
        x509.load_pem_x509_certificate(data)
    except ValueError:
        raise ParameterError(f"{where} is no certificate; ask for the join file again") from None


def new_authority(name: str) -> Certified:
    """Return the key and certificate of a new authority."""
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    return _certify(
        f"{name} authority", AUTHORITY_DAYS, None, constraints, _usage("key_cert_sign", "crl_sign")
    )


def new_server(authority: Certified, hosts: Sequence[str], days: float = SERVER_DAYS) -> Certified:
    """Return a new key and certificate of a server, valid for these host names and addresses."""
    return _certify(
        *(hosts[0], days, authority),
        x509.BasicConstraints(ca=False, path_length=None),
        _usage("digital_signature"),
        x509.SubjectAlternativeName([_host(host) for host in hosts]),
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
    )


def days_left(certificate: bytes) -> float:
    """Return for how many days a certificate is still valid; negative once it has expired."""
    until = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    return (until - dt.datetime.now(dt.UTC)) / dt.timedelta(days=1)


def _certify(
    name: str, days: float, authority: Certified | None, *extensions: x509.ExtensionType
) -> Certified:
    """Return a new key with a certificate that an authority signs, or the key itself."""
    key = new_key()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    issuer, issuer_key = subject, key
    extensions += (x509.SubjectKeyIdentifier.from_public_key(key.public_key()),)
    if authority is not None:
        issuer = x509.load_pem_x509_certificate(authority.certificate).subject
        issuer_key = serialization.load_pem_private_key(authority.key, None)  # type: ignore[assignment]
        extensions += (x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),)
    now = dt.datetime.now(dt.UTC)
    until = now + dt.timedelta(days=days)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(min(now, until) - _BEFORE).not_valid_after(until)
    for extension in extensions:
        critical = isinstance(extension, x509.BasicConstraints | x509.KeyUsage)
        builder = builder.add_extension(extension, critical)
    certificate = builder.sign(issuer_key, hashes.SHA384())
    return Certified(private_pem(key), certificate.public_bytes(Encoding.PEM))


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*uses: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{use: use in uses for use in _USES})
