"""Options as Spark passes them: texts, under names in lower case. They are checked here, one by one."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rmqio.client.factory import RemotingClientFactory
from rmqio.errors import LocalError
from rmqio.options import NAME_SERVER_VARIABLE, options_of_cluster, parse_name_server
from rmqio.pyspark.options.secured import refuse_secrets, security_of

OUTAGE_MS: Final = 60_000
"""How long to wait for a broker that does not answer, by default."""


def known(options: Mapping[str, str], names: Sequence[str], when: str = "") -> dict[str, str]:
    """Returns the options under their own names. Raises `LocalError` for an unknown one."""
    refuse_secrets(options)
    names_by_lower = {name.lower(): name for name in names}
    given = {}
    for key, value in options.items():
        name = names_by_lower.get(key.lower())
        if name is None:
            near = difflib.get_close_matches(key.lower(), names_by_lower, n=1)
            hint = f"; did you mean {names_by_lower[near[0]]}?" if near else f"; the options are {', '.join(names)}"
            raise LocalError(f"there is no option {key!r} of the format rocketmq{when}{hint}")
        given[name] = value
    return given


def number(given: Mapping[str, str], name: str, *, least: int = 1) -> int | None:
    """Returns a whole number, or None if it is not given. Raises `LocalError`."""
    if name not in given:
        return None
    value = given[name]
    if not value.strip().isdecimal() or int(value) < least:
        raise LocalError(f"{name} is {value!r}; it must be a whole number of at least {least}")
    return int(value)


def boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    """Returns a boolean. Raises `LocalError` for anything but true and false."""
    value = given.get(name, str(default)).strip().lower()
    if value not in ("true", "false"):
        raise LocalError(f"{name} is {given[name]!r}; it must be true or false")
    return value == "true"


def choice(given: Mapping[str, str], name: str, *allowed: str) -> Any:
    """Returns one of `allowed`, the first by default. Raises `LocalError` for any other value."""
    value = given.get(name, allowed[0]).strip().lower()
    if value not in allowed:
        raise LocalError(f"{name} is {given[name]!r}; it must be one of {', '.join(allowed)}")
    return value


def json_object(given: Mapping[str, str], name: str, example: str) -> dict[str, Any]:
    """Returns a JSON object. Raises `LocalError`, which shows the example."""
    try:
        found = json.loads(given[name])
    except ValueError as error:
        what = f"{name} is {given[name]!r:.200}"
        raise LocalError(f"{what}, which is not JSON ({error}); it must look like {example}") from error
    if not isinstance(found, dict):
        raise LocalError(f"{name} is {given[name]!r:.200}; it must look like {example}")
    return found


def factory(given: Mapping[str, str], **more: Any) -> RemotingClientFactory:
    """Returns a factory of clients for the cluster that the options name. Raises `LocalError`.

    Args:
      more: further fields of `ClientOptions`.
    """
    if (timeout := number(given, "requestTimeoutMs")) is not None:
        more["request_timeout_ms"] = timeout
    more["security"] = security_of(given)
    try:
        options = options_of_cluster(
            given.get("nameServer") or _name_server(), namespace=given.get("namespace", ""), **more
        )
    except LocalError as error:
        raise LocalError(f"nameServer: {error}") from error
    return RemotingClientFactory(options)


def _name_server() -> tuple[str, ...]:
    try:
        return parse_name_server(None)
    except LocalError as error:
        raise LocalError(
            f"set the option nameServer to host:port, or the environment variable {NAME_SERVER_VARIABLE}"
        ) from error
