"""The interface of what binds queries, for modules that it calls and that call it."""

from __future__ import annotations

from typing import Protocol

from rmqio.sql.analysis.scope import Scope
from rmqio.sql.planning.plan import Relation
from rmqio.sql.syntax import nodes


class Queries(Protocol):
    """Binds queries to a catalog. All methods raise `Refusal`."""

    @property
    def ttl_ms(self) -> int:
        """How long a row waits for partners; 0: it was not said."""

    def query(self, query: nodes.Query) -> Relation:
        """Returns the relation of a query."""

    def body(self, body: nodes.Body) -> Relation:
        """Returns the relation of a body."""

    def from_of(self, select: nodes.Select) -> tuple[Relation, Scope]:
        """Returns the rows of FROM, and the columns that expressions can name."""
