"""The first bytes of bodies in Confluent's formats: 00, the schema's id (4 bytes, big endian)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from rmqio.errors import LocalError
from rmqio.sql.errors import Refusal
from rmqio.sql.formats.base import RowFailure
from rmqio.sql.formats.options import FormatOptions

if TYPE_CHECKING:
    from rmqio.serde.registry import RestRegistry

_HEAD: Final = struct.Struct(">bI")
SIZE: Final = _HEAD.size
TIMES: Final[Mapping[str, Any]] = MappingProxyType({"timeout_s": 5.0, "retries": 2})
"""How long a job waits for a registry: three times 5 s, and not 40 s, since the runner tries again as well."""


def head(schema_id: int) -> bytes:
    """Returns the bytes before the value."""
    return _HEAD.pack(0, schema_id)


def check_head(body: bytes, what: str) -> None:
    """Raises `RowFailure` unless the body begins as in Confluent's formats."""
    if len(body) < SIZE or body[0]:
        begins = f"it begins with {body[:1].hex()}, and not 00" if body[:1] != b"\0" else "it is too short"
        raise RowFailure(f"the body is not {what} of a registry: {begins}")


def registry_of(options: FormatOptions, format_name: str) -> RestRegistry:
    """Returns the registry of a table. Raises `Refusal`."""
    from rmqio.serde.registry import RestRegistry

    if not options.has("registry_url"):
        raise Refusal(f"the format {format_name} needs the option '{format_name}.url'", None)
    try:
        return RestRegistry(options.text("registry_url", "").strip(), **TIMES)
    except LocalError as error:
        raise options.refusal("registry_url", f"cannot be used: {error}") from None


def subject_of(topic: str | None, options: FormatOptions) -> str:
    """Returns the subject: that of the values of the topic, unless the table says another one."""
    return options.text("registry_subject", "").strip() or f"{topic}-value"
