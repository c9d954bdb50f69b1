"""Quantified comparisons that are not supported, and the way out for each."""

from __future__ import annotations

from typing import Any

from rmqio.sql.syntax import nodes


def instead_of(operator: str, quantifier: str, items: Any) -> str:
    """Returns the way out for a quantified comparison that is not supported."""
    is_all = quantifier == "ALL"
    smallest = (operator[0] == ">") != is_all
    if isinstance(items, tuple):
        values = [_brief(each) for each in items]
        shown = values if None not in values and len(values) <= 3 else ["a", "b"][: len(values)]
        way = f"write {(' AND ' if is_all else ' OR ').join(f'value {operator} {each}' for each in shown)}"
        if operator[0] in "<>" and operator != "<>" and len(items) > 1:
            way += f", or value {operator} {'LEAST' if smallest else 'GREATEST'}({', '.join(map(str, shown))})"
        return way
    if operator == "<>":  # ANY, SOME
        return "use EXISTS (SELECT ... WHERE column <> value), or NOT IN for <> ALL"
    if operator == "=":  # ALL
        return "use NOT EXISTS (SELECT ... WHERE column <> value), or IN for = ANY"
    return f"compare with the aggregate, value {operator} (SELECT {'MIN' if smallest else 'MAX'}(column) FROM ...)"


def _brief(item: nodes.Node) -> str | None:
    """Returns the text of a short literal."""
    if not isinstance(item, nodes.Literal) or item.kind not in ("number", "string") or len(item.value) > 20:
        return None
    return str(item.value) if item.kind == "number" else "'" + item.value.replace("'", "''") + "'"
