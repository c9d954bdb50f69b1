"""Signatures of requests (AclUtils.java, AclSigner.java): the same for access control 1.0 and 2.0.

The signature covers the values of the header's fields, ordered by name, and the body, but neither the code nor the
time. So anyone who sees a frame can replay it: credentials without TLS do not protect against eavesdroppers.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping
from json.encoder import encode_basestring as _quoted
from typing import Final

from rmqio.security import Credentials
from rmqio.wire.command import Command

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"


def signature(secret_key: str, content: bytes, body: bytes = b"") -> str:
    """Return the Base64 of HMAC-SHA1 over content and body."""
    code = hmac.new(secret_key.encode(), content, "sha1")
    code.update(body)
    return b64encode(code.digest()).decode()


def content_of(fields: Mapping[str, str]) -> str:
    """Return the signed part of a header: all values, ordered by their names."""
    return "".join([fields[name] for name in sorted(fields)])


def signed(command: Command, credentials: Credentials) -> Command:
    """Return the same request with the fields that identify its sender."""
    fields = {**command.ext, **_identity(credentials)}
    content = content_of(fields).encode("utf-8", "surrogatepass")
    fields[SIGNATURE] = signature(credentials.secret_key, content, command.body)
    return Command(
        command.code,
        fields,
        command.body,
        command.opaque,
        command.flag,
        command.remark,
        command.language,
        command.version,
    )


def signed_header(header: bytes, content: bytes, body: bytes, credentials: Credentials) -> bytes:
    """As `signed`, for the JSON header of a request that has fields and no remark.

    Args:
      header: its bytes.
      content: `content_of` its fields. Their names must sort after those of the fields that are added here, which is
        the case if they begin with a lower-case letter.
    """
    identity = _identity(credentials)
    code = signature(credentials.secret_key, "".join(identity.values()).encode() + content, body)
    more = "".join([f',"{name}":{_quoted(value)}' for name, value in {**identity, SIGNATURE: code}.items()])
    return b"".join((header[:-2], more.encode(), b"}}"))


def _identity(credentials: Credentials) -> dict[str, str]:
    token = credentials.security_token
    mine = {ACCESS_KEY: credentials.access_key}
    return mine if token is None else {**mine, SECURITY_TOKEN: token}
