"""Security options of the format `rocketmq`. None of them takes a secret, since Spark shows options in its web UI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rmqio.errors import LocalError
from rmqio.security import Security, Tls

SECURITY_NAMES: Final = (
    "credentials",
    "tls",
    "tlsCaFile",
    "tlsCertificateFile",
    "tlsKeyFile",
    "tlsKeyPasswordVariable",
    "tlsServerName",
    "addressMap",
    "allowedAddresses",
)
_SECRETS: Final = ("accesskey", "secretkey", "securitytoken", "tlskeypassword")


def refuse_secrets(options: Mapping[str, str]) -> None:
    """Raises `LocalError` for an option that seems to hold a secret. Its value is not quoted."""
    for name in options:
        if name.lower().replace("_", "").replace(".", "") in _SECRETS:
            raise LocalError(
                f"the option {name} would show a secret in Spark's web UI: say where it is instead, credentials = "
                "environment, file:PATH or function:MODULE:NAME"
            )


def security_of(given: Mapping[str, str]) -> Security:
    """Returns the security settings that the options give. Raises `LocalError`."""
    kind = given.get("tls", "false").strip().lower()
    if kind not in ("true", "false", "insecure"):
        raise LocalError(f"tls is {given['tls']!r}; it must be true, false or insecure")
    files = {
        "ca_file": given.get("tlsCaFile"),
        "certificate_file": given.get("tlsCertificateFile"),
        "key_file": given.get("tlsKeyFile"),
        "key_password_variable": given.get("tlsKeyPasswordVariable"),
        "server_name": given.get("tlsServerName"),
    }
    if kind == "false" and any(files.values()):
        raise LocalError("TLS options are given, but tls is not true")
    tls = None if kind == "false" else Tls(insecure=kind == "insecure", **files)
    address_map = {}
    for pair in _parts(given.get("addressMap", "")):
        origin, equals, target = pair.partition("=")
        if not (origin and equals and target):
            raise LocalError(f"addressMap is {given['addressMap']!r}; it must look like 10.0.0.5:10911=gate:30911,...")
        address_map[origin] = target
    return Security(given.get("credentials"), tls, address_map, _parts(given.get("allowedAddresses", "")))


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
