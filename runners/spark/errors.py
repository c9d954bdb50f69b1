"""Errors of the Spark runner: what failed in user code, without the frames of those who called it."""

from __future__ import annotations

import re
import traceback
from typing import Final

_MARK: Final = "rmqio-task-failure"
_FOUND: Final = re.compile(rf"{_MARK}<(.*?)>{_MARK}", re.DOTALL)
_JAVA_FRAME: Final = re.compile(r"\s+(at [\w.$<>/]+\(|\.\.\. \d+ more)|Driver stacktrace:|\s*$")
_OF_A_QUERY: Final = "=== Streaming Query ==="
"""Begins what Spark adds to a query's failure: its numbers, its offsets and its plan."""
_LINES: Final = 30
_WHERE: Final = re.compile(r"\s*\[while running '(.*)'\]\s*$", re.DOTALL)
# Beam's calls of a DoFn, and ours of Beam
_CALLERS: Final = re.compile(r"(^|/)(apache_beam/(runners/(common|worker/)|transforms/core\.py)|runners/spark/)")


# As Python joins tracebacks
_CAUSE: Final = "\nThe above exception was the direct cause of the following exception:\n"
_CONTEXT: Final = "\nDuring handling of the above exception, another exception occurred:\n"


class TaskFailure(Exception):
    """Raised in a worker; its text carries the user's traceback through Spark's to the driver, between marks.

    `where` names the transform, or those of which it is one, if the error does not: what is raised when a bundle is
    over, as state is encoded, has no name in it.
    """

    def __init__(self, error: BaseException, where: str = "") -> None:
        super().__init__(f"{_MARK}<{described(error, where)}>{_MARK}")


class PipelineFailed(RuntimeError):
    """A pipeline failed in user code. The message names the transform and holds the traceback of the worker."""


def failure_in(text: str) -> str | None:
    """What `described` said, in what Spark says about a failed job; None: the failure was not in user code."""
    found = _FOUND.search(text)
    return found[1].strip() if found else None


def without_java_frames(error: BaseException, running: str = "") -> BaseException:
    """A failure of Spark's own, such as a lost executor, with what it says and without where in Spark it says so.

    `running` names the transforms of the job that failed: which of them it was, Spark does not know.
    """
    text = str(error).partition(_OF_A_QUERY)[0]
    lines = [line for line in text.splitlines() if not _JAVA_FRAME.match(line)]
    if len(lines) == len(str(error).splitlines()):
        return error
    where = f" in {running}" if running else ""
    return PipelineFailed(f"Spark failed{where}: " + "\n".join(list(dict.fromkeys(lines))[:_LINES]))


def described(error: BaseException, otherwise: str = "") -> str:
    """The transform's name and the error, then the traceback from the user's first frame on.

    `otherwise` is where it was if the error does not say so.
    """
    where = next((found[1] for each in _chain(error) if (found := _WHERE.search(str(each)))), otherwise)
    text = _WHERE.sub("", "".join(traceback.format_exception_only(error))).strip()
    head = f"{where}: {text}" if where else text
    parts: list[str] = []
    for each in reversed(_chain(error)):
        frames = traceback.extract_tb(each.__traceback__)
        theirs = [frame for frame in frames if not _CALLERS.search(frame.filename)]
        if not theirs and each is not error:
            continue  # Beam's own re-raising
        trace = "".join(traceback.format_list(theirs or frames))
        end = _WHERE.sub("", "".join(traceback.format_exception_only(each))).strip()
        part = f"Traceback (most recent call last):\n{trace}{end}"
        if part not in parts:
            parts += [_CAUSE if each.__cause__ is not None else _CONTEXT, part] if parts else [part]
    return "\n".join([head, *parts])


def _chain(error: BaseException) -> list[BaseException]:
    """The error, what it was raised from, and so on."""
    found: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in found:
        found.append(each)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return found
