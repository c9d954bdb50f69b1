"""Shortens what Python shows when a runner's error ends a program: the user's frames, or one line.

One line is enough for Ctrl-C, and for what this machine lacks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from rmqio.runners.errors import NotReady
from rmqio.runners.tracebacks.failures import shows_all
from rmqio.runners.tracebacks.frames import of_users, passes_runners

_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def show_users_frames() -> None:
    """Wraps `sys.excepthook`, once. Errors that have not passed through our runners are shown as before.

    The frames of Beam around ours are added after our code has raised: only here can they be left out.
    """
    if not isinstance(sys.excepthook, _Shown):
        sys.excepthook = _Shown(sys.excepthook)


class _Shown:
    def __init__(self, before: _Hook) -> None:
        self._before = before

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, NotReady) and not shows_all():
            print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr, flush=True)
            return
        if passes_runners(trace) and not shows_all():
            if isinstance(error, KeyboardInterrupt):
                trace, error.__cause__ = None, None  # which also suppresses what was handled at that moment
            else:
                trace = of_users(trace)
            error = error.with_traceback(trace)
        self._before(kind, error, trace)
