"""Shows something again and again until Ctrl-C."""

from __future__ import annotations

import io
import shutil
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Final

from rmqio.command_line.exits import INTERRUPTED
from rmqio.command_line.output import note
from rmqio.errors import RmqioError, counted

_HOME: Final = "\x1b[H"
_CLEAR_LINE: Final = "\x1b[K"
_CLEAR_BELOW: Final = "\x1b[J"
_CLEAR_SCREEN: Final = "\x1b[2J\x1b[H"


def watch(
    show: Callable[[], int],
    seconds: float,
    *,
    redraws: bool,
    sleep: Callable[[float], None] | None = None,
) -> int:
    """Call `show` every so many seconds until Ctrl-C, and return the exit status of that.

    On a terminal, with `redraws`, each output takes the place of the one before; elsewhere, they follow each other. An
    error of the first call is raised. A later one is printed, since a broker that restarts comes back.
    """
    on_screen = redraws and sys.stdout.isatty()
    times = 0
    try:
        while True:
            try:
                if on_screen:
                    _draw(show, seconds, is_first=times == 0)
                else:
                    if times and redraws:
                        print()
                    show()
            except RmqioError as error:
                if not times:
                    raise
                note(str(error))
            sys.stdout.flush()
            times += 1
            (sleep or time.sleep)(seconds)
    except KeyboardInterrupt:
        if on_screen:
            print(flush=True)  # the terminal has echoed ^C
        note(f"ended by Ctrl-C, shown {counted(times, 'time')}")
        return INTERRUPTED


class _Screen(io.StringIO):
    """Text for the terminal."""

    def isatty(self) -> bool:
        return True


def _draw(show: Callable[[], int], seconds: float, *, is_first: bool) -> None:
    """Collect the output first, so that the screen is not empty while brokers are asked."""
    drawn = _Screen()
    with redirect_stdout(drawn), redirect_stderr(drawn if sys.stderr.isatty() else sys.stderr):
        show_now = f"{time.strftime('%H:%M:%S')}, every {seconds:g} s, Ctrl-C ends it"
        show()
    columns, rows = shutil.get_terminal_size()
    shown = [show_now, *drawn.getvalue().splitlines()]
    lines = [part for line in shown for part in textwrap.wrap(line, columns) or [""]]
    rows -= 2
    if len(lines) > rows > 4:  # keep the end, which has the sum
        left_out = len(lines) - rows + 1
        lines = [*lines[: rows - 4], f"... {counted(left_out, 'line')} more than the terminal has", *lines[-3:]]
    text = "\n".join(line + _CLEAR_LINE for line in lines)
    sys.stdout.write((_CLEAR_SCREEN if is_first else _HOME) + text + "\n" + _CLEAR_BELOW)
