"""Frames of tracebacks: those of user code, without those of Beam and of our own that called it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import TracebackType
from typing import Final

import rmqio

_RUNNERS: Final = Path(__file__).parents[1]
# Beam's calls of a DoFn, our own code, and the threads that both use. Beam's compiled modules name their files from
# `apache_beam` on.
_OURS: Final = re.escape(str(Path(rmqio.__file__).parent))
_CALLERS: Final = re.compile(
    rf"(^|/)(apache_beam/(runners/|transforms/core\.py|pipeline\.py)|concurrent/futures/|(threading|contextlib)\.py)|^{_OURS}/"
)
_OF_RUNNERS: Final = f"{_RUNNERS}/"
_HIDES: Final = "__tracebackhide__"


def of_users(trace: TracebackType | None) -> TracebackType | None:
    """Returns the part of a traceback that is not of Beam's or our own callers."""
    frames = []
    while trace is not None:
        if is_of_user(trace.tb_frame.f_code.co_filename):
            frames.append(trace)
        trace = trace.tb_next
    found: TracebackType | None = None
    for each in reversed(frames):
        found = TracebackType(found, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return found


def is_of_user(filename: str) -> bool:
    """Returns whether a frame's file is neither Beam's nor ours."""
    return _CALLERS.search(filename) is None


def passes_runners(trace: TracebackType | None) -> bool:
    """Returns whether a traceback has a frame of one of our runners."""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(_OF_RUNNERS):
            return True
        trace = trace.tb_next
    return False


def hide_callers() -> None:
    """Marks the frames of Beam and of ours between here and the user's program.

    IPython and pytest leave such frames out. For a program without them, `uncaught` does.
    """
    frame = inspect.currentframe()
    while frame is not None:
        if not is_of_user(frame.f_code.co_filename):
            frame.f_locals[_HIDES] = True
        frame = frame.f_back
