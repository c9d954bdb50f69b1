"""Options of the format `rocketmq` for reads and writes, as Spark passes them: texts, under names in lower case."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rmqio.client.factory import RemotingClientFactory
from rmqio.errors import LocalError
from rmqio.hints import nearest
from rmqio.interfaces import ClientFactory
from rmqio.options import NAME_SERVER_VARIABLE, WriteOptions, options_of_cluster, parse_name_server
from rmqio.security import Security, Tls
from rmqio.topics import validate_group, validate_topic

# Security options of the format `rocketmq`. None of them takes a secret, since Spark shows options in its web UI.

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


OUTAGE_MS: Final = 60_000
"""How long to wait for a broker that does not answer, by default."""


_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)")


def known(options: Mapping[str, str], names: Sequence[str], when: str = "") -> dict[str, str]:
    """Returns the options under their own names. Raises `LocalError` for an unknown one."""
    refuse_secrets(options)
    names_by_lower = {name.lower(): name for name in names}
    given = {}
    for key, value in options.items():
        name = names_by_lower.get(key.lower())
        if name is None:
            near = nearest(key.lower(), names_by_lower)
            hint = f"; did you mean {names_by_lower[near]}?" if near else f"; the options are {', '.join(names)}"
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


def duration_ms(given: Mapping[str, str], name: str, default_ms: int) -> int:
    """Returns a duration in milliseconds, as Spark writes durations: a number and a unit. Raises `LocalError`."""
    if name not in given:
        return default_ms
    match = _DURATION.fullmatch(given[name].strip().lower())
    if match is None:
        raise LocalError(f"{name} is {given[name]!r}; it must be a number with a unit: 500ms, 30s, 15m, 1h or 1d")
    return int(match[1]) * _UNITS_MS[match[2]]


def boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    """Returns a boolean. Raises `LocalError` for anything but true and false."""
    value = given.get(name, str(default)).strip().lower()
    if value not in ("true", "false"):
        raise LocalError(f"{name} is {given[name]!r}; it must be true or false")
    return value == "true"


def trace(given: Mapping[str, str]) -> bool | str:
    """Returns whether messages are traced, or the topic of the traces. Raises `LocalError`."""
    value = given.get("trace", "false").strip()
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    try:
        validate_topic(value)
    except LocalError as error:
        raise LocalError(f"trace: {error}; it must be true, false or the name of a topic") from error
    return value


def choice(given: Mapping[str, str], name: str, *allowed: str) -> Any:
    """Returns one of `allowed`, the first by default. Raises `LocalError` for any other value."""
    value = given.get(name, allowed[0]).strip().lower()
    if value not in allowed:
        raise LocalError(f"{name} is {given[name]!r}; it must be one of {', '.join(allowed)}")
    return value


def json_object(given: Mapping[str, str], name: str, example: str) -> dict[str, Any]:
    """Returns a JSON object. Raises `LocalError`, which shows the example."""
    try:
        found = json.loads(given[name], object_pairs_hook=_without_doubles)
    except _Double as error:
        raise LocalError(f"{name} has {error} twice in one object; give each topic, broker and queue once") from None
    except ValueError as error:
        what = f"{name} is {given[name]!r:.200}"
        raise LocalError(f"{what}, which is not JSON ({error}); it must look like {example}") from error
    if not isinstance(found, dict):
        raise LocalError(f"{name} is {given[name]!r:.200}; it must look like {example}")
    return found


class _Double(ValueError):
    pass


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Double(json.dumps(next(each for each in names if names.count(each) > 1)))
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


# Write options of the format `rocketmq`, from text to checked values.

WRITE_NAMES: Final = (
    "nameServer",
    "topic",
    "producerGroup",
    "maxBatchMessages",
    "maxBatchBytes",
    "maxTotalBytes",
    "maxInFlight",
    "requestTimeoutMs",
    "maxRetries",
    "outageTimeoutMs",
    "namespace",
    "compressOverBytes",
    "compression",
    "compressionLevel",
    "createTopics",
    "reservedProperties",
    "trace",
    *SECURITY_NAMES,
)
OF_SPARK: Final = ("checkpointlocation", "queryname")
"""Spark passes its own options of a streaming query along with the sink's."""
_GROUP: Final = "rmqio_producer"


@dataclass(frozen=True)
class WriteSettings:
    """All settings of a task that writes. Picklable."""

    topic: str | None
    """The topic of all messages; None: each row names its own."""
    factory: ClientFactory
    group: str
    options: WriteOptions
    outage_timeout_s: float
    drops_reserved: bool
    """Whether properties with reserved names are dropped or refused."""
    streaming: bool


def write_settings(options: Mapping[str, str], *, streaming: bool) -> WriteSettings:
    """Checks the options of a write. Raises `LocalError`, which names the option and says what is wrong."""
    given = known(
        {name: value for name, value in options.items() if not (streaming and name.lower() in OF_SPARK)},
        WRITE_NAMES,
        " when writing",
    )
    topic, group = given.get("topic"), given.get("producerGroup", _GROUP)
    for name, check, value in (("topic", validate_topic, topic), ("producerGroup", validate_group, group)):
        try:
            if value is not None:
                check(value)
        except LocalError as error:
            raise LocalError(f"{name}: {error}") from error
    values = {
        "max_batch_messages": number(given, "maxBatchMessages"),
        "max_batch_bytes": number(given, "maxBatchBytes"),
        "max_total_bytes": number(given, "maxTotalBytes"),
        "max_in_flight": number(given, "maxInFlight"),
        "max_retries": number(given, "maxRetries", least=0),
        "compress_over_bytes": number(given, "compressOverBytes"),
        "compression_level": number(given, "compressionLevel"),
        "compression": choice(given, "compression", "zlib", "lz4", "zstd"),
    }
    found: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    chosen = WriteOptions(**found, trace=trace(given))
    return WriteSettings(
        topic,
        factory(
            given,
            max_in_flight=chosen.max_in_flight,
            max_retries=chosen.max_retries,
            compress_over_bytes=chosen.compress_over_bytes,
            compression=chosen.compression,
            compression_level=chosen.compression_level,
            create_topics=choice(given, "createTopics", "false", "true") == "true",
        ),
        group,
        chosen,
        (number(given, "outageTimeoutMs") or OUTAGE_MS) / 1000,
        choice(given, "reservedProperties", "error", "drop") == "drop",
        streaming,
    )
