"""Changes docstrings for the site.

Paragraphs that begin with a label, such as "Delivery: at least once", show it in bold: the parser of Google's style
would take "Returns: a PCollection" for the title of a section. The metrics, which are data, are shown as a table.
"""

from __future__ import annotations

import re
from typing import Any, Final

import griffe

from rmqio.telemetry import METRICS

_LABEL: Final = re.compile(
    r"^(Columns of a read|Delivery(?: of a write)?|Order|Raises|Returns|Windows): (?=\S)", re.MULTILINE
)


class ShownDocstrings(griffe.Extension):
    """Changes the docstring of each object when it has been loaded."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.path == "rmqio.telemetry.METRICS":
            obj.docstring = griffe.Docstring(_metrics(), parent=obj)
        if obj.docstring is not None:
            obj.docstring.value = _LABEL.sub(r"**\1**: ", obj.docstring.value)


def _metrics() -> str:
    rows = [
        (f"`{metric.name}`", metric.kind.value, metric.unit, ", ".join(metric.labels) or "-", metric.meaning)
        for metric in METRICS.values()
    ]
    head = ("name", "kind", "unit", "labels", "meaning")
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
