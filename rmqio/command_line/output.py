"""Terminal output: widths, tables, numbers with units, times, JSON, exit statuses; nothing controls the terminal."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, Final, TextIO

from rmqio.errors import RmqioError, counted, quoted
from rmqio.hints import character_width

# The width of a terminal, and of text on it; text that cannot control it.

COLUMNS: Final = 80
"""The width of help texts and tables."""
GAP: Final = 2
"""Spaces between the columns of a table."""
_SHORTEST: Final = 16
_DOTS: Final = "..."
_LONGEST: Final = 200
"""Of a word in a message; paths are shorter as a rule."""
HIDDEN: Final = "***"
_STATEMENT: Final = re.compile(
    r"(?:.*;)?(?:\s|--[^\n]*\n|/\*.*?\*/)*(?:ALTER|CREATE|EXECUTE|EXPLAIN|INSERT|SELECT|SET|WITH)\s|.*'\s*=\s*'",
    re.IGNORECASE | re.DOTALL,
)
"""A statement, which can hold a password, begins with a verb or has an option. Names of files can have blanks."""
# Control, bidirectional and invisible characters, lone surrogates, tags. Joiners stay, since scripts and emoji need
# them; newlines and tabs stay.
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def line_width() -> int:
    """Return the width to print for: the terminal's, but at least 80."""
    return max(COLUMNS, shutil.get_terminal_size((COLUMNS, 24)).columns)


def display_width(text: str) -> int:
    """Return the columns that text takes: Chinese characters take two."""
    return len(text) if text.isascii() else sum(map(character_width, text))


def safe(text: str) -> str:
    """Escape characters that would control a terminal, or that nobody would see."""
    return _UNSAFE.sub(_escape, text)


def safe_line(text: str) -> str:
    """Like `safe`, on one line."""
    return safe(text).replace("\n", "\\n").replace("\t", "\\t")


def cut(text: str, columns: int) -> str:
    """Return the text on one line, cut with dots if it takes more columns."""
    text = " ".join(text.split())
    if display_width(text) <= columns:
        return text
    left, end = columns - 4, 0
    while end < len(text) and (left := left - character_width(text[end])) >= 0:
        end += 1
    return text[:end].rstrip() + " ..."


def is_statement(word: str) -> bool:
    """Return whether a word of a command line is a statement of SQL, which can hold a password: no message shows it."""
    return _STATEMENT.match(word) is not None


def with_short_words(text: str, words: Iterable[str]) -> str:
    """Return a message in which the words of a command line, as it has them or quoted, are fit to be shown.

    Those that are very long are cut, and statements are `***`, also what is between their commas.

    Args:
      words: the command line; the value behind the equals sign of an option is one, too.
    """
    parts = dict[str, str]()
    for part in (part for word in words for part in (word, word.partition("=")[2])):
        if is_statement(part):
            parts |= {each: HIDDEN for each in (part, *re.split("[,;]", part)) if is_statement(part) and "'" in each}
            parts[part] = HIDDEN
        elif len(part) > _LONGEST:
            parts[part] = ""
    for part in sorted(parts, key=len, reverse=True):
        for shown in {part, quoted(part)[1:-1], repr(part)[1:-1]}:
            text = text.replace(shown, parts[part] or f"{shown[:_LONGEST]}{_DOTS}")
    return text


def without_middle(text: str, columns: int) -> str:
    """Return the text with dots in place of its middle if it takes more columns. Both ends tell names apart."""
    if display_width(text) <= columns:
        return text
    head, tail, left = 0, len(text), columns - len(_DOTS)
    while head < tail:
        takes_head = head <= len(text) - tail
        left -= character_width(text[head if takes_head else tail - 1])
        if left < 0:
            break
        head, tail = (head + 1, tail) if takes_head else (head, tail - 1)
    return text[:head] + _DOTS + text[tail:]


def with_short_names(rows: Sequence[Sequence[str]], names: Sequence[int], most: int) -> list[list[str]]:
    """Return a table's rows with the middle of long names left out, so that they take at most so many columns.

    The widest of the columns `names` gives first. All stay whole if two names would then look the same.
    """
    if not rows:
        return []
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    before = list(widths)
    while sum(widths) + GAP * (len(widths) - 1) > most:
        widest = max(names, key=lambda column: widths[column], default=None)
        if widest is None or widths[widest] <= _SHORTEST:
            break
        widths[widest] -= 1
    found = [list(row) for row in rows]
    for column in names:
        if widths[column] == before[column]:
            continue
        short = [without_middle(row[column], widths[column]) for row in rows]
        if len(set(short)) == len({row[column] for row in rows}):
            for row, cell in zip(found, short, strict=True):
                row[column] = cell
    return found


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# Exit statuses of all our programs.

OK: Final = 0
FAILED: Final = 1
WRONG_USAGE: Final = 2
INTERRUPTED: Final = 130
"""After Ctrl-C, as shells report it."""


# The error of a command that cannot do what was asked.


class CommandFailed(RmqioError):
    """The state of the cluster does not permit the command. One line says what, where and what to do; exit status 1."""


def allow_any_text(stream: TextIO) -> None:
    """Escape a character that the stream cannot encode, instead of failing."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def one_line(text: str) -> str:
    """Join text of several lines, such as a broker's remark, into one."""
    return safe(" ".join(text.split()))


def print_json(value: Any) -> None:
    """Print one JSON document on one line, in ASCII: it is the same everywhere and holds no control character."""
    print(json.dumps(value).replace("\x7f", "\\u007f"))


def note(text: str) -> None:
    """Print a remark that is not part of the data, on stderr."""
    sys.stdout.flush()
    print(f"rmqio: {one_line(text)}", file=sys.stderr, flush=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, total: Sequence[str] | None = None) -> None:
    """Print aligned columns.

    A title that begins with `>` marks a column of numbers, aligned to the right. A `?` in front of it marks a column to
    leave out if the table is wider than the terminal; those on the left go first. `~` marks a column of names: if the
    table is still too wide for a terminal, long names lose their middle. Elsewhere they stay whole, for scripts.
    """
    lines = [[title.lstrip("?>~") for title in columns], *map(list, rows), *([list(total)] if total else [])]
    most = line_width()
    widths = _widths(lines)
    shown = list(range(len(columns)))
    for number in [number for number, title in enumerate(columns) if title.startswith("?")]:
        if sum(widths[i] + GAP for i in shown) - GAP > most:
            shown.remove(number)
    lines = [[line[i] for i in shown] for line in lines]
    titles = [columns[i] for i in shown]
    if sys.stdout.isatty():
        lines = with_short_names(lines, [i for i, title in enumerate(titles) if title.startswith("~")], most)
    widths = _widths(lines)
    for number, line in enumerate(lines):
        if total and number == len(lines) - 1:
            print((" " * GAP).join("-" * width for width in widths))
        cells = [
            _aligned(cell, width, is_number=">" in title[:2])
            for cell, width, title in zip(line, widths, titles, strict=True)
        ]
        print((" " * GAP).join(cells).rstrip())


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(display_width, column)) for column in zip(*lines, strict=True)]


def _aligned(cell: str, width: int, *, is_number: bool) -> str:
    space = " " * (width - display_width(cell))
    return space + cell if is_number else cell + space


def shortened(names: Sequence[str], most: int = 3) -> str:
    """Join names; of many, only the first and how many more there are."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"


def count(number: int | None) -> str:
    """Format a number as 1,234; None as a dash."""
    return "-" if number is None else f"{number:,}"


def size(number: int) -> str:
    """Format a number of bytes, in a larger unit where that is clearer."""
    if number < 10_000:
        return counted(number, "byte")
    return f"{number / 1e3:,.0f} kB" if number < 1e6 else f"{number / 1e6:,.1f} MB"


def duration(ms: float | None) -> str:
    """Format a duration in the unit that fits; None as a dash, one that a wrong clock makes negative as 0."""
    if ms is None:
        return "-"
    seconds = max(ms, 0) / 1000
    if seconds == 0:
        return "0 s"
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, hours, days = seconds / 60, seconds / 3_600, seconds / 86_400
    return f"{minutes:.0f} min" if minutes < 100 else f"{hours:.0f} h" if hours < 100 else f"{days:,.0f} d"


def time_text(ms: int | None, *, timespec: str = "milliseconds") -> str:
    """Format a time in the local time zone as ISO 8601, which `--from` takes; None as a dash."""
    if ms is None:
        return "-"
    try:
        return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).astimezone().isoformat(timespec=timespec)
    except (OverflowError, ValueError, OSError):  # a producer can write any number
        return f"{ms} ms"


def age(ms: int | None, now_ms: int) -> str:
    """Format how long ago a time was; None as a dash."""
    return "-" if ms is None else f"{duration(now_ms - ms)} ago"


# Shows something again and again until Ctrl-C.

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
