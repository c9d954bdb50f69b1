"""What the shell prints: rows as an aligned table that fits the terminal, and the answers of SHOW and DESCRIBE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from rmqio.command_line.output import GAP, display_width, line_width, safe_line
from rmqio.sql import types
from rmqio.sql.analysis.functions import function_names
from rmqio.sql.analysis.queries import scan_of
from rmqio.sql.casts import text_of
from rmqio.sql.catalog.tables import Catalog, Table
from rmqio.sql.planning.plan import Field
from rmqio.sql.scripts.script import Texts
from rmqio.sql.syntax.parser import RESERVED
from rmqio.sql.types import SqlType

# SHOW and DESCRIBE: tables of texts about the catalog.

Listing = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""The titles of columns, and rows."""


def list_tables(catalog: Catalog) -> Listing:
    """Returns the tables, and those that come from elsewhere; what cannot be used says so only when it is used."""
    further = () if catalog.further is None else catalog.further.names()
    return ("table",), [(each,) for each in sorted({*catalog.tables, *further})]


def list_views(catalog: Catalog) -> Listing:
    """Returns the views."""
    return ("view",), [(each,) for each in sorted(catalog.views)]


def list_functions(catalog: Catalog) -> dict[str, list[str]]:
    """Returns the functions: those that were created, if there are some, and those that SQL has."""
    created = {"created function": sorted(catalog.functions)} if catalog.functions else {}
    return {**created, "function of SQL": sorted(function_names())}


def described(fields: Sequence[Field], table: Table | None, texts: Texts) -> Listing:
    """Returns the columns of a table or a view."""
    rows: list[tuple[str, ...]] = []
    for each in fields:
        column = None if table is None else table.column(each.name)
        more = []
        if table is not None and each.name in table.primary_key:
            more.append("PRIMARY KEY")
        if column is not None and column.metadata is not None:
            more.append(f"METADATA FROM '{column.metadata.key}'" + (" VIRTUAL" if column.is_virtual else ""))
        if column is not None and column.expression is not None:
            more.append(f"AS {texts.text_of(column.expression.span)}")
        if table is not None and table.watermark is not None and table.watermark[0] == each.name:
            more.append(f"WATERMARK AS {texts.text_of(table.watermark[1].span)}")
        rows.append((each.name, each.type.text, "" if each.type.is_nullable else "NOT NULL", ", ".join(more)))
    return ("column", "type", "null", "more"), rows


def columns_of(table: Table) -> list[Field]:
    """Returns the columns of a table: also those that are only written."""
    found = [Field(each.name, each.type) for each in table.columns]
    if any(each.expression is not None for each in table.columns):
        types = {each.name: each for each in scan_of(table).fields}
        return [types.get(each.name, each) for each in found]
    return found


def quoted(name: str) -> str:
    """Returns a name as SQL writes it: in backquotes if it needs them."""
    if name.isidentifier() and name.upper() not in RESERVED:
        return name
    return "`" + name.replace("`", "``") + "`"


_NARROWEST: Final = 8
"""Columns of text are not cut below this."""
_SPARE: Final = 4
"""How much wider than a later row a column becomes, if there is room: numbers that grow have few heads."""
_HELD: Final = 1_000
"""Rows that say how wide the columns of a program are."""
_UNCUT: Final = 1 << 30
_DOTS: Final = "..."
_WHOLE: Final = {*types.NUMERIC, "BOOLEAN", "DATE", "TIME", *types.TIMESTAMPS, *types.INTERVALS}


class RowPrinter:
    """Prints rows of these columns. Columns of text can be cut, with dots; those of numbers and times are whole.

    The first rows say how wide columns are. They widen for later rows, if there is room, and the head comes again then,
    so that columns stand under their names. A program that reads the rows gets one head, nothing is cut, and columns
    keep the widths of the first 1,000 rows, which wait for each other: a wider cell moves the rest of its line.

    Args:
      fields: the columns.
      write: takes the lines, one at a time.
      width: of the terminal; None: as it is, at least 80.
      is_read: by a program.
      is_endless: rows do not wait.
    """

    def __init__(
        self,
        fields: Sequence[Field],
        write: Callable[[str], object],
        width: int | None = None,
        *,
        is_read: bool = False,
        is_endless: bool = False,
    ) -> None:
        self._is_read = is_read
        self._most_held = _HELD if is_read and not is_endless else 0
        self._held: list[list[str]] = []
        self._names = [safe_line(each.name) for each in fields]
        self._texts = [_cell(each.type) for each in fields]
        self._is_right = [each.type.kind in types.NUMERIC for each in fields]
        self._can_be_cut = [each.type.kind not in _WHOLE for each in fields]
        self._write = write
        self._width = _UNCUT if is_read else line_width() if width is None else width
        self._widths: list[int] | None = None
        self._is_upright = False
        self._printed = 0

    @property
    def count(self) -> int:
        """The rows so far."""
        return self._printed + len(self._held)

    def print(self, rows: Iterable[Sequence[Any]]) -> None:
        """Prints some rows, at the latest with `flush`."""
        self._held += [[of(each) for of, each in zip(self._texts, row, strict=True)] for row in rows]
        if self._widths is None and len(self._held) < self._most_held:
            return
        self.flush()

    def flush(self) -> None:
        """Prints the rows that wait for others."""
        lines, self._held = self._held, []
        if not lines:
            return
        if self._widths is None:
            self.print_head(lines)
        for cells in lines:
            self._printed += 1
            if self._is_upright:
                self._print_upright(cells)
            else:
                self._print_line(cells)

    def end(self) -> None:
        """Prints the rows that wait, or the head of a table without rows."""
        self.flush()
        if self._widths is None:
            self.print_head()

    def print_head(self, lines: Sequence[Sequence[str]] = ()) -> None:
        """Prints the names of the columns, whose widths are those that these rows need."""
        needed = [
            max([display_width(name), *(display_width(line[i]) for line in lines)])
            for i, name in enumerate(self._names)
        ]
        self._widths = self._fitted(needed)
        self._is_upright = self._total(self._widths) > self._width
        if not self._is_upright:
            self._write_head()

    def _write_head(self) -> None:
        assert self._widths is not None
        self._write(self._line(self._names))
        self._write((" " * GAP).join("-" * each for each in self._widths))

    def _fitted(self, needed: list[int]) -> list[int]:
        """Widths that fit, if there are any: the widest of the columns that can be cut gives first."""
        widths = list(needed)
        for _ in range(self._total(widths) - self._width):
            wide = [i for i, each in enumerate(widths) if self._can_be_cut[i] and each > _NARROWEST]
            if not wide:
                break
            widths[max(wide, key=lambda i: widths[i])] -= 1
        return widths

    def _total(self, widths: Sequence[int]) -> int:
        return sum(widths) + GAP * (len(widths) - 1)

    def _print_line(self, cells: list[str]) -> None:
        if not self._is_read:
            self._widen(cells)
        self._write(self._line(cells))

    def _widen(self, cells: list[str]) -> None:
        assert self._widths is not None
        needed = [
            width if can_be_cut else max(width, display_width(cell))
            for cell, width, can_be_cut in zip(cells, self._widths, self._can_be_cut, strict=True)
        ]
        widths = self._fitted(needed)
        wider = [i for i, cell in enumerate(cells) if display_width(cell) > self._widths[i]]
        for spare in (0, _SPARE):
            for i in wider:
                room = self._width - self._total(widths)
                widths[i] += max(0, min(room, display_width(cells[i]) + spare - widths[i]))
        if widths != self._widths:
            self._widths = widths
            self._write_head()

    def _line(self, cells: Sequence[str]) -> str:
        assert self._widths is not None
        shown = []
        for cell, width, is_right, can_be_cut in zip(
            cells, self._widths, self._is_right, self._can_be_cut, strict=True
        ):
            text = shortened(cell, width) if can_be_cut and not self._is_read else cell
            space = " " * (width - display_width(text))
            shown.append(space + text if is_right else text + space)
        return (" " * GAP).join(shown).rstrip()

    def _print_upright(self, cells: list[str]) -> None:
        """One line per column, whole: nothing is cut here."""
        widest = max(map(display_width, self._names))
        self._write(f"-- row {self._printed} --")
        for name, cell in zip(self._names, cells, strict=True):
            self._write(f"{name}{' ' * (widest - display_width(name))}  {cell}")


def _cell(kind: SqlType) -> Callable[[Any], str]:
    """Returns the function from a value to its text, on one line."""
    to_text = text_of(kind, is_shown=True)
    return lambda value: "NULL" if value is None else safe_line(to_text(value))


def shortened(text: str, columns: int) -> str:
    """Returns the text, cut with dots if it takes more columns of a terminal."""
    if display_width(text) <= columns:
        return text
    left, end = columns - len(_DOTS), 0
    while (left := left - display_width(text[end])) >= 0:
        end += 1
    return text[:end] + _DOTS


def print_table(
    names: Sequence[str], rows: Iterable[Sequence[str]], write: Callable[[str], object], *, is_read: bool = False
) -> None:
    """Prints a table of texts. `is_read`: by a program."""
    printer = RowPrinter([Field(each, types.VARCHAR) for each in names], write, is_read=is_read)
    printer.print(rows)
    printer.end()


def print_names(title: str, names: Sequence[str], write: Callable[[str], object]) -> None:
    """Prints names in order, from the top to the bottom of as many columns as fit."""
    step = max(map(display_width, names)) + GAP
    height = -(-len(names) // max(1, (line_width() + GAP) // step))
    write(title)
    write("-" * len(title))
    for line in range(height):
        write("".join(name + " " * (step - display_width(name)) for name in names[line::height]).rstrip())
