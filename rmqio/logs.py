"""Logs as one JSON object per line. Only fields from a fixed list are written: never a body or a secret.

All loggers of this library are below `rmqio`. Log messages name queues, offsets, groups and errors. The formatter
finds them in the arguments of a log call, and in its `extra=event(...)`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from rmqio.errors import LocalError, RmqioError
from rmqio.model import MessageQueue

VARIABLE: Final = "RMQIO_LOG"
"""`json`: workers log as with `configure()`. A level can follow: `json:DEBUG`."""
FIELDS: Final = ("topic", "broker", "queue_id", "offset", "group", "count", "error")
"""The fields that an event can have, in this order."""
_EXTRA: Final = "rmqio"
_LOGGER: Final = logging.getLogger("rmqio")


def event(
    *,
    queue: MessageQueue | None = None,
    topic: str | None = None,
    offset: int | None = None,
    group: str | None = None,
    count: int | None = None,
    error: Exception | str | None = None,
) -> dict[str, Any]:
    """The `extra` of a log call. The field of an error is its class; its text belongs in the message."""
    fields: dict[str, Any] = {"topic": topic, "offset": offset, "group": group, "count": count}
    if queue is not None:
        fields.update(_of_queue(queue))
    if error is not None:
        fields["error"] = error if isinstance(error, str) else type(error).__name__
    return {_EXTRA: {name: value for name, value in fields.items() if value is not None}}


class JsonFormatter(logging.Formatter):
    """One JSON object per line: `time` (ISO 8601, UTC), `level`, `logger`, `message`, the known `FIELDS`, and
    `exception`, the traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        shown: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        found = _of_arguments(record.args)
        given = getattr(record, _EXTRA, None)
        if isinstance(given, Mapping):
            found.update(given)
        shown.update((name, found[name]) for name in FIELDS if isinstance(found.get(name), (str, int)))
        if record.exc_info and record.exc_info[0] is not None:
            shown["exception"] = self.formatException(record.exc_info)
        return json.dumps(shown, ensure_ascii=False)


def configure(level: int | str = logging.INFO, *, json: bool = True, stream: TextIO | None = None) -> logging.Handler:
    """Make the library's loggers write to `stream` (None: stderr), and nowhere else. Returns the handler.

    Another call replaces the handler that this function added before, and no other. `json=False`: plain text lines. To
    format the logs of a whole program, set a `JsonFormatter` on a handler of your own. Raises `LocalError` for an
    unknown level.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(
        JsonFormatter() if json else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    try:
        _LOGGER.setLevel(level)
    except (ValueError, TypeError) as error:
        raise LocalError(f"level is {level!r}; it must be a level of logging, e.g. INFO") from error
    for known in _LOGGER.handlers[:]:
        if getattr(known, "is_of_rmqio", False):
            _LOGGER.removeHandler(known)
    handler.is_of_rmqio = True  # type: ignore[attr-defined]
    _LOGGER.addHandler(handler)
    _LOGGER.propagate = False
    return handler


def configure_from_environment() -> None:
    """Configures logs as RMQIO_LOG says. An invalid value causes a warning: a job does not fail because of its logs."""
    kind, _, level = os.environ.get(VARIABLE, "").partition(":")
    if not kind:
        return
    if kind.lower() != "json":
        _LOGGER.warning("%s is %r; it must be json, or json:LEVEL", VARIABLE, kind)
        return
    try:
        configure((level or "INFO").upper())
    except LocalError as error:
        _LOGGER.warning("%s: %s", VARIABLE, error)


def _of_queue(queue: MessageQueue) -> dict[str, Any]:
    return {"topic": queue.topic, "broker": queue.broker, "queue_id": queue.queue_id}


def _of_arguments(arguments: object) -> dict[str, Any]:
    """The first queue and the first `RmqioError` among the arguments of a log call."""
    found: dict[str, Any] = {}
    for each in arguments if isinstance(arguments, tuple) else ():
        if isinstance(each, MessageQueue) and "topic" not in found:
            found.update(_of_queue(each))
        elif isinstance(each, RmqioError) and "error" not in found:
            found["error"] = type(each).__name__
    return found
