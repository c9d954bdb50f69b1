"""Certificates of an authority of our own, in the formats that servers in Java read."""

from __future__ import annotations

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


def key_of(certificate: trustme.LeafCert) -> bytes:
    """Returns the private key as PKCS 8: neither Netty nor Kafka reads another format."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def chain_of(certificate: trustme.LeafCert) -> bytes:
    """Returns the certificate and those between it and the authority."""
    return b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
