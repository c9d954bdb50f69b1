"""The statement that a fragment is a part of: it names the errors of rows, and says what becomes of such rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from rmqio.sql.catalog.options import ON_ERROR


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement, where its rows come from certain tables.

    Attributes:
      name: such as `INSERT INTO totals, line 7`; empty: it is unknown.
      on_error: what becomes of a row that cannot be computed. If it comes from several tables, the strictest option of
        theirs counts.
      has_nulls: a value that cannot be computed is NULL in one of these tables: NULL can be where types are NOT NULL.
    """

    name: str = ""
    on_error: str = "fail"
    has_nulls: bool = False

    @property
    def makes_nulls(self) -> bool:
        """Whether a value that cannot be computed is NULL."""
        return self.on_error == "null"


def strictest(options: Iterable[str]) -> str:
    """Returns the strictest of the values of `on-error`; `fail` if there are none."""
    return min(options, key=ON_ERROR.index, default="fail")


_NONE: Final = Statement()
_CURRENT: Final[ContextVar[Statement]] = ContextVar("statement", default=_NONE)


def current() -> Statement:
    """Returns the statement that is translated."""
    return _CURRENT.get()


@contextlib.contextmanager
def translating(statement: Statement) -> Iterator[None]:
    """Makes it the statement of the fragments that are made in this block."""
    token = _CURRENT.set(statement)
    try:
        yield
    finally:
        _CURRENT.reset(token)
