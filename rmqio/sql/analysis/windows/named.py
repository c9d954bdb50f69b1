"""Windows that WINDOW names: `SUM(a) OVER w ... WINDOW w AS (PARTITION BY k ORDER BY ts)`."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from rmqio.sql.errors import Refusal, nearest
from rmqio.sql.syntax import nodes


def with_windows(select: nodes.Select) -> nodes.Select:
    """Returns the SELECT with each named window where it is used. Raises `Refusal` for a name that is not there."""
    known: dict[str, nodes.Over] = {}
    for name, window in select.windows:
        if name.text in known:
            raise Refusal(f"WINDOW has {name} twice", name.span)
        known[name.text] = window
    items, having = (_replaced(each, known) for each in (select.items, select.having))
    if items is select.items and having is select.having:
        return select
    return replace(select, items=items, having=having)


def _replaced(node: Any, known: dict[str, nodes.Over]) -> Any:
    if isinstance(node, tuple):
        found = tuple(_replaced(each, known) for each in node)
        return node if all(new is old for new, old in zip(found, node, strict=True)) else found
    if not isinstance(node, nodes.Node) or isinstance(node, nodes.Query):
        return node
    if isinstance(node, nodes.Over):
        if node.name is None:
            return node
        if node.name.text not in known:
            hint = nearest(node.name.text, known) or ": WINDOW defines it, before ORDER BY and LIMIT"
            raise Refusal(f"there is no window {node.name}{hint}", node.name.span)
        return replace(known[node.name.text], span=node.span)
    changes: dict[str, Any] = {}
    for each in fields(node):
        before = getattr(node, each.name)
        if isinstance(before, (tuple, nodes.Node)):
            after = _replaced(before, known)
            if after is not before:
                changes[each.name] = after
    return replace(node, **changes) if changes else node
