"""Random queries of queries, as DuckDB and we both take them: what stands in FROM is a random query again.

So relations meet in all orders, with columns that nothing needs and expressions that stand there twice.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

TABLES: Final = {"a": "k {text}, n INT, f BOOLEAN", "b": "k {text}, n INT", "e": "k {text}, n INT"}
"""The columns of each table; `text`: the type of texts."""
_KINDS: Final = {"k": "s", "n": "i", "f": "b"}


class Column(NamedTuple):
    """A column: its name, and `i`, `s` or `b` for the type."""

    name: str
    kind: str


class Query(NamedTuple):
    """A query and its columns."""

    text: str
    columns: list[Column]


_EXPRESSIONS: Final = {
    "i": (
        "({i} + {i})", "({i} - {i})", "CASE WHEN {b} THEN {i} ELSE {i} END", "COALESCE({i}, {i})", "NULLIF({i}, {i})",
        "CHAR_LENGTH({s})", "ABS({i})", "1", "-2", "CAST(NULL AS INT)",
    ),
    "s": (
        "({s} || {s})", "CASE WHEN {b} THEN {s} END", "COALESCE({s}, {s})", "NULLIF({s}, {s})", "UPPER({s})",
        "REPLACE({s}, 'a', 'xy')", "'a'", "''",
    ),
    "b": (
        "({i} < {i})", "({i} <> {i})", "({s} = {s})", "({b} AND {b})", "({b} OR {b})", "(NOT {b})", "({s} IS NULL)",
        "({b} IS NOT TRUE)", "({i} IN (1, {i}, NULL))", "({i} NOT IN (2, {i}))", "({s} LIKE '%b%')",
        "({i} BETWEEN {i} AND {i})", "({i} IS DISTINCT FROM {i})", "TRUE", "CAST(NULL AS BOOLEAN)",
    ),
}  # fmt: skip
_AGGREGATES: Final = (
    ("COUNT(*){f}", "i"), ("COUNT({s}){f}", "i"), ("COUNT(DISTINCT {i}){f}", "i"), ("MIN({s}){f}", "s"),
    ("MAX({i}){f}", "i"), ("CAST(SUM(DISTINCT {i}){f} AS INT)", "i"), ("CAST(SUM({i}){f} AS INT)", "i"),
)  # fmt: skip
_CALLS: Final = (
    "COUNT(*) OVER ({p} ORDER BY {o} ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING)", "RANK() OVER ({p} ORDER BY {o})",
    "DENSE_RANK() OVER ({p} ORDER BY {o})", "COUNT({c}) OVER ({p})", "MAX({c}) OVER ({p} ORDER BY {o})",
)  # fmt: skip


class Composer:
    """Makes queries. Names count through all of them."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._count = 0

    def query(self, depth: int) -> Query:
        """Returns a query of queries, so many deep."""
        if depth <= 0:
            table = self._random.choice("aaabbbe")
            names = (each.split()[0] for each in TABLES[table].split(", "))
            columns = [Column(each, _KINDS[each]) for each in names]
            return Query(f"SELECT {_listed(columns)} FROM {table}", columns)
        kinds: list[Callable[[int], Query]] = [
            self._projection, self._projection, self._groups, self._groups, self._join, self._join, self._sets,
            self._distinct, self._over, self._membership, self._scalar, self._first, self._common,
        ]  # fmt: skip
        return self._random.choice(kinds)(depth - 1)

    def _name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _expression(self, columns: list[Column], kind: str, depth: int = 2) -> str:
        own = [each.name for each in columns if each.kind == kind]
        if own and (depth <= 0 or self._random.random() < 0.3):
            return self._random.choice(own)
        rules = [each for each in _EXPRESSIONS[kind] if depth > 0 or "{" not in each]
        text = self._random.choice(rules)
        for name in "isb":
            while f"{{{name}}}" in text:
                text = text.replace(f"{{{name}}}", self._expression(columns, name, depth - 1), 1)
        return text

    def _where(self, columns: list[Column], word: str = "WHERE") -> str:
        return f" {word} {self._expression(columns, 'b')}" if self._random.random() < 0.5 else ""

    def _selected(self, expressions: list[tuple[str, str]], rest: str) -> Query:
        columns = [Column(self._name("c"), kind) for _, kind in expressions]
        items = (f"{text} AS {each.name}" for (text, _), each in zip(expressions, columns, strict=True))
        return Query(f"SELECT {', '.join(items)} {rest}", columns)

    def _projection(self, depth: int) -> Query:
        inner = self.query(depth)
        kinds = self._random.choices("isb", k=self._random.randrange(1, 4))
        items = [(self._expression(inner.columns, kind), kind) for kind in kinds]
        return self._selected(items, f"FROM ({inner.text}) {self._name('t')}{self._where(inner.columns)}")

    def _groups(self, depth: int) -> Query:
        inner = self.query(depth)
        keys = self._random.sample(inner.columns, self._random.randrange(min(3, len(inner.columns) + 1)))
        items = [(each.name, each.kind) for each in keys]
        for text, kind in self._random.choices(_AGGREGATES, k=self._random.randrange(1, 4)):
            argument = {each: self._expression(inner.columns, each, 1) for each in "is"}
            condition = self._where(inner.columns)
            items.append((text.format(f=condition and f" FILTER ({condition})", **argument), kind))
        group = f" GROUP BY {_listed(keys)}" if keys else ""
        having = self._random.choice(["", "", " HAVING COUNT(*) > 1", " HAVING MAX(1) < 3"])
        return self._selected(
            items, f"FROM ({inner.text}) {self._name('t')}{self._where(inner.columns)}{group}{having}"
        )

    def _join(self, depth: int) -> Query:
        left, right = self.query(depth), self.query(depth)
        sides = self._name("t"), self._name("t")
        here, there = (
            [Column(f"{side}.{each.name}", each.kind) for each in query.columns]
            for side, query in zip(sides, (left, right), strict=True)
        )
        pairs = [(one.name, other.name) for one in here for other in there if one.kind == other.kind]
        if not pairs:
            return left
        on = f"{' = '.join(self._random.choice(pairs))}{self._where([*here, *there], 'AND')}"
        kind = self._random.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        chosen = self._random.sample([*here, *there], min(3, len(here) + len(there)))
        rest = f"FROM ({left.text}) {sides[0]} {kind} ({right.text}) {sides[1]} ON {on}{self._where([*here, *there])}"
        return self._selected([(each.name, each.kind) for each in chosen], rest)

    def _sets(self, depth: int) -> Query:
        kinds = self._random.choices("is", k=self._random.randrange(1, 3))
        sides = []
        for inner in (self.query(depth), self.query(depth)):
            items = [(self._expression(inner.columns, kind, 1), kind) for kind in kinds]
            sides.append(self._selected(items, f"FROM ({inner.text}) {self._name('t')}"))
        operators = ["UNION ALL", "UNION", "EXCEPT", "INTERSECT", "EXCEPT ALL", "INTERSECT ALL"]
        return Query(f"{sides[0].text} {self._random.choice(operators)} {sides[1].text}", sides[0].columns)

    def _distinct(self, depth: int) -> Query:
        inner = self.query(depth)
        return Query(f"SELECT DISTINCT {_listed(inner.columns)} FROM ({inner.text}) {self._name('t')}", inner.columns)

    def _over(self, depth: int) -> Query:
        inner = self.query(depth)
        order = ", ".join(f"{each.name} NULLS {self._random.choice(['FIRST', 'LAST'])}" for each in inner.columns)
        partition = self._random.choice([f"PARTITION BY {inner.columns[0].name}", "", ""])
        last = inner.columns[-1]
        call = self._random.choice(_CALLS[:4] if last.kind == "b" else _CALLS).format(p=partition, o=order, c=last.name)
        kind = last.kind if call.startswith("MAX") else "i"
        items = [*((each.name, each.kind) for each in inner.columns), (call, kind), (call, kind)]
        return self._selected(items, f"FROM ({inner.text}) {self._name('t')}")

    def _membership(self, depth: int) -> Query:
        inner, other = self.query(depth), self.query(depth)
        pairs = [(one, two) for one in inner.columns for two in other.columns if one.kind == two.kind]
        if not pairs:
            return inner
        (one, two), here, there = self._random.choice(pairs), self._name("t"), self._name("t")
        negated = self._random.choice(["", "NOT "])
        test = self._random.choice([
            f"{here}.{one.name} {negated}IN (SELECT {two.name} FROM ({other.text}) {there})",
            f"{negated}EXISTS (SELECT 1 FROM ({other.text}) {there} WHERE {there}.{two.name} = {here}.{one.name})",
        ])  # fmt: skip
        return Query(f"SELECT {_listed(inner.columns)} FROM ({inner.text}) {here} WHERE {test}", inner.columns)

    def _scalar(self, depth: int) -> Query:
        inner, other = self.query(depth), self.query(depth)
        here, there = self._name("t"), self._name("t")
        pairs = [(one, two) for one in inner.columns for two in other.columns if one.kind == two.kind]
        condition = ""
        if pairs:
            one, two = self._random.choice(pairs)
            condition = f" WHERE {there}.{two.name} = {here}.{one.name}"
        value = f"(SELECT COUNT(*) FROM ({other.text}) {there}{condition})"
        items = [*((f"{here}.{each.name}", each.kind) for each in inner.columns), (value, "i")]
        return self._selected(items, f"FROM ({inner.text}) {here}")

    def _first(self, depth: int) -> Query:
        inner = self.query(depth)
        order = ", ".join(f"{each.name} DESC NULLS {self._random.choice(['FIRST', 'LAST'])}" for each in inner.columns)
        limit = f"LIMIT {self._random.randrange(6)}{self._random.choice(['', ' OFFSET 2'])}"
        text = f"SELECT * FROM ({inner.text}) {self._name('t')} ORDER BY {order} {limit}"
        return Query(f"SELECT * FROM ({text}) {self._name('t')}", inner.columns)

    def _common(self, depth: int) -> Query:
        inner, name = self.query(depth), self._name("w")
        key = inner.columns[0]
        items = [(f"x.{key.name}", key.kind), ("COUNT(*)", "i")]
        joined = f"FROM {name} x JOIN {name} y ON x.{key.name} = y.{key.name} GROUP BY x.{key.name}"
        found = self._selected(items, joined)
        return Query(f"SELECT * FROM (WITH {name} AS ({inner.text}) {found.text}) {self._name('t')}", found.columns)


def _listed(columns: list[Column]) -> str:
    return ", ".join(each.name for each in columns)
