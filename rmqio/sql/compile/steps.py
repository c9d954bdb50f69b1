"""Steps: they happen to each row on its way."""

from __future__ import annotations

from dataclasses import dataclass

from rmqio.sql.expressions import Expr


@dataclass(frozen=True, slots=True)
class Step:
    """A filter and a projection."""

    condition: Expr | None
    projections: tuple[Expr, ...]
