"""Errors of the Spark runner, which show what failed in user code without the frames of its callers, and its logger."""

from __future__ import annotations

import contextlib
import logging
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import rmqio.errors
from rmqio.errors import RmqioError
from rmqio.runners.errors import PipelineFailed

# The logger of the Spark runner, and what others log in vain.

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


_MARK: Final = "rmqio-task-failure"
_FOUND: Final = re.compile(rf"{_MARK}<(.*?)>{_MARK}", re.DOTALL)
_FULL: Final = re.compile(r"(?:(/\S+) \()?No space left on device")
_JAVA_FRAME: Final = re.compile(r"\s+(at [\w.$<>/]+\(|\.\.\. \d+ more)|Driver stacktrace:|\s*$")
_OF_A_QUERY: Final = "=== Streaming Query ==="
"""The start of what Spark appends to the failure of a query: its ids, offsets and plan."""
_LINES: Final = 30
_WHERE: Final = re.compile(r"\s*\[while running '(.*)'\]\s*$", re.DOTALL)
_OURS: Final = re.compile(re.escape(str(Path(rmqio.errors.__file__).parent)))
# The code in Beam that calls a DoFn, and our code that calls Beam
_CALLERS: Final = re.compile(
    rf"(^|/)apache_beam/(runners/(common|worker/)|transforms/core\.py)|^{re.escape(str(Path(__file__).parent))}/"
)


# The text with which Python joins tracebacks
_CAUSE: Final = "\nThe above exception was the direct cause of the following exception:\n"
_CONTEXT: Final = "\nDuring handling of the above exception, another exception occurred:\n"


class TaskFailure(Exception):
    """Raised in a worker. Its text carries the user's traceback to the driver, between marks, inside Spark's own.

    `where` names the transform, or the transforms among which it is, if the error does not name it. Errors that are
    raised after a bundle, while state is encoded, contain no name.
    """

    def __init__(self, error: BaseException, where: str = "") -> None:
        super().__init__(f"{_MARK}<{described(error, where)}>{_MARK}")


def failure_in(text: str) -> str | None:
    """Returns the text of `described` from Spark's message about a failed job; None if user code did not fail."""
    found = _FOUND.search(text)
    return found[1].strip() if found else None


def without_java_frames(error: BaseException, running: str = "") -> BaseException:
    """Returns a failure of Spark itself, such as a lost executor, with its message but without the frames of the JVM.

    `running` names the transforms of the failed job. Spark does not know which of them failed.
    """
    if full := _FULL.search(str(error)):
        what = f"there is no room left for {full[1]}" if full[1] else "there is no room left on a disk"
        return PipelineFailed(
            f"{what}: --checkpoint_dir, and Spark's own files in spark.local.dir, need room; a stream that is started "
            "again goes on from its last commit"
        )
    text = str(error).partition(_OF_A_QUERY)[0]
    lines = [line for line in text.splitlines() if not _JAVA_FRAME.match(line)]
    if len(lines) == len(str(error).splitlines()):
        return error
    where = f" in {running}" if running else ""
    return PipelineFailed(f"Spark failed{where}: " + "\n".join(list(dict.fromkeys(lines))[:_LINES]))


def described(error: BaseException, otherwise: str = "") -> str:
    """Returns the transform's name and the error, then the traceback from the first frame of user code on.

    `otherwise` names the transform if the error does not. An error of ours that no user code has met is only its text.
    """
    where = next((found[1] for each in _chain(error) if (found := _WHERE.search(str(each)))), otherwise)
    text = _WHERE.sub("", "".join(traceback.format_exception_only(error))).strip()
    head = f"{where}: {text}" if where else text
    parts: list[str] = []
    for each in reversed(_chain(error)):
        frames = traceback.extract_tb(each.__traceback__)
        theirs = [frame for frame in frames if not _CALLERS.search(frame.filename)]
        if not theirs and each is not error:
            continue  # Beam raised the error again
        if isinstance(error, RmqioError) and all(_OURS.match(frame.filename) for frame in theirs):
            continue  # the text says it all
        trace = "".join(traceback.format_list(theirs or frames))
        end = _WHERE.sub("", "".join(traceback.format_exception_only(each))).strip()
        part = f"Traceback (most recent call last):\n{trace}{end}"
        if part not in parts:
            parts += [_CAUSE if each.__cause__ is not None else _CONTEXT, part] if parts else [part]
    return "\n".join([head, *parts])


def _chain(error: BaseException) -> list[BaseException]:
    """Returns the error, the error that it was raised from, and so on."""
    found: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in found:
        found.append(each)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return found
