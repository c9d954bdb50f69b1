"""The logger of the Spark runner, and what others log in vain."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

LOGGER = logging.getLogger("rmqio.runners.spark")
_WHILE_SENDING = "while sending command."
_REENTRANT = "reentrant call"


@contextlib.contextmanager
def interrupts_unlogged() -> Iterator[None]:
    """Drops the two tracebacks that Py4J logs if Ctrl-C interrupts a call of the JVM, e.g. while Spark starts.

    PySpark's handler calls the JVM in the middle of the call, which cannot work, and then raises `KeyboardInterrupt`.
    """
    logger = logging.getLogger()
    logger.addFilter(_is_no_interrupt)
    try:
        yield
    finally:
        logger.removeFilter(_is_no_interrupt)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if error is None or not record.getMessage().endswith(_WHILE_SENDING):
        return True
    return not isinstance(error, KeyboardInterrupt) and _REENTRANT not in str(error.__context__)
