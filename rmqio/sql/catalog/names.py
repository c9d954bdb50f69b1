"""Names of topics and groups in options of tables: what no broker accepts is refused when a table is created."""

from __future__ import annotations

from rmqio.sql.errors import Refusal
from rmqio.sql.syntax.statements import Option
from rmqio.topics import group_fault, topic_fault


def check_names(options: dict[str, Option]) -> None:
    """Raises `Refusal` for an option that names a topic or a group as none can be named."""
    for what in ("topic", "dead_letters", "group", "producer_group"):
        option = options.get(what)
        name = option.value.strip() if option else ""
        if option is None or not name:
            continue
        kind = "group" if "group" in what else "topic"
        if fault := group_fault(name) if kind == "group" else topic_fault(name):
            raise Refusal(f"{option.key} is {name!r}, which is not a valid {kind} name: {fault}", option.value_span)
