"""How a write uses its options: the clients that they describe, and which options would have no effect.

An option without effect is refused when the write is built (docs/options.md), because users who set it rely on it.
"""

from __future__ import annotations

from typing import Any, Final

from rmqio.errors import LocalError
from rmqio.options import ClientOptions, WriteOptions
from rmqio.repeats import LookBack
from rmqio.security import Security
from rmqio.transforms.reading.options import changed_options, check_trace, describe

_OF_CLIENT: Final = {
    "request_timeout_ms": "request_timeout_ms",
    "max_retries": "max_retries",
    "busy_timeout_ms": "busy_timeout_ms",
    "max_in_flight": "max_in_flight",
    "name_server_poll_interval_ms": "route_refresh_ms",
    "broker_heartbeat_interval_ms": "heartbeat_ms",
    "namespace": "namespace",
    "vip_channel": "vip_channel",
    "compress_over_bytes": "compress_over_bytes",
    "compression": "compression",
    "compression_level": "compression_level",
    "create_topics": "create_topics",
    "client_id_prefix": "client_id_prefix",
    "unit_name": "unit_name",
    "security": "security",
}
"""The write options that configure the client, and their names in `ClientOptions`."""
_ALWAYS_SHOWN: Final = (
    "batch_flush", "max_batch_messages", "max_batch_bytes", "asynchronous", "max_in_flight", "max_retries",
    "request_timeout_ms",
)  # fmt: skip
_SHOWN_ELSEWHERE: Final = frozenset({"name_server", "producer_group", "security"})


def write_client_options(name_servers: tuple[str, ...], options: WriteOptions, *, replica_reads: bool) -> ClientOptions:
    """The client options of a write."""
    given: dict[str, Any] = {theirs: getattr(options, mine) for mine, theirs in _OF_CLIENT.items()}
    return ClientOptions(name_servers, replica_reads=replica_reads, **given)


def refuse_beside_factory(
    name_server: str | tuple[str, ...] | list[str] | None, security: Security | None, options: WriteOptions
) -> None:
    """Raises `LocalError` for options that a user's own `client_factory` would ignore."""
    # The write also uses max_in_flight itself.
    changed = changed_options(options)
    ours = [name for name in ("name_server", *_OF_CLIENT) if name in changed and name != "max_in_flight"]
    given = [
        *(["name_server"] if name_server is not None else []),
        *(["security"] if security is not None else []),
        *(f"WriteOptions.{name}" for name in ours),
    ]
    if given:
        raise LocalError(
            f"{given[0]} and client_factory are both given; the factory knows its "
            f"{given[0].rpartition('.')[2].replace('_', ' ')} already"
        )


def refuse_idle(options: WriteOptions) -> None:
    """Raises `LocalError` for options that have no effect without another one."""
    changed = changed_options(options)
    check_trace(options)
    for names, is_idle, needed in (
        (
            ("max_batch_messages", "max_batch_bytes", "max_total_bytes", "max_wait_ms"),
            not options.batch_flush,
            "batch_flush=True",
        ),
        (("max_in_flight",), not options.asynchronous, "asynchronous=True"),
        (("compression", "compression_level"), options.compress_over_bytes is None, "compress_over_bytes"),
    ):
        for name in names:
            if is_idle and name in changed:
                raise LocalError(
                    f"WriteOptions.{name}={changed[name]!r} does nothing without {needed}: set both or none"
                )


def shown(options: WriteOptions, *, of_client: bool) -> dict[str, Any]:
    """Display data: how messages are batched, and all options that differ from their default; no secret.

    Args:
      of_client: whether the options configure a client; False with a user's own factory.
    """
    found = {name: getattr(options, name) for name in _ALWAYS_SHOWN}
    found |= {name: value for name, value in changed_options(options).items() if name not in _SHOWN_ELSEWHERE}
    if of_client:
        found["security"] = describe(options.security)
    return found


def shown_look_back(look_back: LookBack) -> dict[str, Any]:
    """Display data: the fields of a `LookBack` that differ from their default, except the group."""
    changed = changed_options(look_back)
    found = {f"look_back.{name}": value for name, value in changed.items() if name not in ("group", "since")}
    return found if look_back.since_ms is None else found | {"look_back.since_ms": look_back.since_ms}
