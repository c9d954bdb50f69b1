"""The hot loops in C, where they were built and nobody turned them off. See docs/accelerator.md."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Final

from rmqio.model import Message, MessageQueue, Record, SendResult, SendStatus


def _load() -> ModuleType | None:
    if os.environ.get("RMQIO_PURE_PYTHON", "0") not in ("", "0"):
        return None
    try:
        return importlib.import_module("rmqio.wire._fast")
    except ImportError:  # not built, or built for another version of rmqio
        return None


_fast: Final = _load()

IMPLEMENTATION: Final = "python" if _fast is None else "c"
"""What this process decodes and encodes with."""

DecodeUsual = Callable[[bytes, int, list[Record], str, str | None, bool], int]
decode_usual: Final[DecodeUsual | None] = getattr(_fast, "decode_usual", None)
"""As `stored._decode_usual_in_python`, and takes messages of both versions and with any hosts."""

EncodeUsual = Callable[[Sequence[Message], Sequence[str], int, int, int], tuple[bytes, int]]
encode_usual: Final[EncodeUsual | None] = getattr(_fast, "encode_usual", None)
"""Messages and their ids, from which index on, how many and how many bytes at most: the bytes of the members at the
front that are usual and fit, and how many they are."""

HeaderFields = tuple[int, dict[str, str], int, int, str | None, Any, int]
"""Code, fields, opaque, flag, remark, language (as it was read) and version."""
read_usual_header: Final[Callable[[bytes], HeaderFields | None] | None] = getattr(_fast, "read_usual_header", None)
"""As `command._read_json`; None for a header that is not usual."""

usual_properties: Final[Callable[[Message, str], str | None] | None] = getattr(_fast, "usual_properties", None)
"""`encode_properties` as text; None for a message, or an id, that is not usual."""

usual_size: Final[Callable[[object], int] | None] = getattr(_fast, "usual_size", None)
"""`batch.estimated_size` of a `Message` that may go into any batch of its topic and has no properties; of anything
else 0."""

SendResults = Callable[[MessageQueue, int, Sequence[str], list[str], SendStatus], list[SendResult]]
send_results: Final[SendResults | None] = getattr(_fast, "send_results", None)
"""As `batch.send_results`."""
