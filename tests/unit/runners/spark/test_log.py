"""The log of Py4J when Ctrl-C interrupts a call of the JVM; other failures of calls stay in the log."""

from __future__ import annotations

import logging

import pytest

from rmqio.runners.spark.errors import interrupts_unlogged


class NetworkError(Exception):
    """As Py4J's."""


def log(text: str, error: BaseException, context: BaseException | None = None) -> None:
    try:
        try:
            raise context or error
        except type(context or error):
            raise error  # noqa: B904 - as Py4J does
    except BaseException:
        logging.exception(text)


def test_interrupts_are_not_logged_and_lost_connections_are(caplog: pytest.LogCaptureFixture) -> None:
    with interrupts_unlogged():
        log("KeyboardInterrupt while sending command.", KeyboardInterrupt())
        log("Exception while sending command.", NetworkError("lost"), RuntimeError("reentrant call inside <_io...>"))
        assert not caplog.records
        log("Exception while sending command.", NetworkError("lost"), ConnectionResetError())
        logging.error("anything else")
    log("KeyboardInterrupt while sending command.", KeyboardInterrupt())
    assert [record.getMessage() for record in caplog.records] == [
        "Exception while sending command.",
        "anything else",
        "KeyboardInterrupt while sending command.",
    ]
