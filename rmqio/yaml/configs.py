"""Parts that the configurations of the transforms share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rmqio import start
from rmqio.errors import LocalError
from rmqio.security import Security, Tls
from rmqio.start import StartFrom, StopAt

_SECURITY: Final = ("credentials", "tls", "address_map", "allowed_addresses")


def error_output(error_handling: Mapping[str, Any] | None) -> str | None:
    """Returns the name of the output of errors; None: an error fails the pipeline. Raises `LocalError`."""
    if error_handling is None:
        return None
    if not isinstance(error_handling, Mapping) or set(error_handling) != {"output"}:
        raise LocalError(f"error_handling is {error_handling!r}; it must be {{output: NAME}}")
    return str(error_handling["output"])


def security_of(given: Mapping[str, Any] | None) -> Security | None:
    """Returns the security of a configuration: the fields of `rmqio.Security`. Raises `LocalError`."""
    if given is None:
        return None
    if unknown := set(given) - set(_SECURITY):
        raise LocalError(f"security has no {sorted(unknown)[0]!r}; it has {', '.join(_SECURITY)}")
    fields = dict(given)
    if isinstance(fields.get("tls"), Mapping):
        try:
            fields["tls"] = Tls(**fields["tls"])
        except TypeError as error:
            raise LocalError(f"security.tls: {error}") from None
    return Security(**fields)


def start_of(text: str | None) -> StartFrom | None:
    """Returns where a read begins. Raises `LocalError`."""
    try:
        return None if text is None else start.start_of(str(text), ("earliest", "latest", "group", "timestamp:TIME"))
    except LocalError as error:
        raise LocalError(f"start: {error}") from None


def stop_of(text: str | None) -> StopAt | None:
    """Returns where a read ends; None: nowhere. Raises `LocalError`."""
    try:
        return None if text is None else start.stop_of(str(text), ("none", "latest", "timestamp:TIME"))
    except LocalError as error:
        raise LocalError(f"stop: {error}") from None


def quoted(name: str) -> str:
    """Returns a name as SQL writes it."""
    return "`" + name.replace("`", "``") + "`"


def options_text(options: Mapping[str, Any]) -> str:
    """Returns WITH (...)."""

    def text(value: Any) -> str:
        found = str(value).lower() if isinstance(value, bool) else str(value)
        return "'" + found.replace("'", "''") + "'"

    return f"WITH ({', '.join(f'{text(key)} = {text(value)}' for key, value in options.items() if value is not None)})"
