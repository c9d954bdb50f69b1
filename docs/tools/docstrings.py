"""Makes paragraphs of docstrings that begin with a label, such as "Delivery: at least once", show their label in bold.

The parser of Google's style knows sections whose text is below their title. It would take "Returns: a PCollection" for
the title of such a section.
"""

from __future__ import annotations

import re
from typing import Any, Final

import griffe

_LABEL: Final = re.compile(
    r"^(Columns of a read|Delivery(?: of a write)?|Order|Raises|Returns|Windows): (?=\S)", re.MULTILINE
)


class LabelledParagraphs(griffe.Extension):
    """Changes the docstring of each object when it has been loaded."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _LABEL.sub(r"**\1**: ", obj.docstring.value)
