"""The hot loops in C, if they were built and are not disabled. See docs/install.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from rmqio.loading import extension
from rmqio.model import Message, MessageQueue, Record, SendResult, SendStatus

_fast: Final = extension("rmqio.wire._fast")

IMPLEMENTATION: Final = "python" if _fast is None else "c"
"""The implementation that this process uses to decode and encode."""

DecodeUsual = Callable[[bytes, int, list[Record], str, str | None, bool], int]
decode_usual: Final[DecodeUsual | None] = getattr(_fast, "decode_usual", None)
"""As `stored._decode_usual_in_python`, but also accepts messages of both versions and with any hosts."""

EncodeUsual = Callable[[Sequence[Message], Sequence[str] | str, int, int, int], tuple[bytes, int]]
encode_usual: Final[EncodeUsual | None] = getattr(_fast, "encode_usual", None)
"""Takes messages, their ids (or the first id, if the others count up from it), a start index, and the maximum number
and size. Returns the bytes of the leading members that are usual and fit, and their number.
"""

is_for_topic: Final[Callable[[Sequence[Message], str], bool] | None] = getattr(_fast, "is_for_topic", None)
"""Whether each message names this topic or none; False also if one is not usual."""

CopiesOfUsual = Callable[[list[Record], int], list[Message]]
copies_of_usual: Final[CopiesOfUsual | None] = getattr(_fast, "copies_of_usual", None)
"""As `copies.copies_of`, from an index on, up to the first record that is not usual."""

HeaderFields = tuple[int, dict[str, str], int, int, str | None, Any, int]
"""Code, fields, opaque, flag, remark, language (as read) and version."""
read_usual_header: Final[Callable[[bytes], HeaderFields | None] | None] = getattr(_fast, "read_usual_header", None)
"""As `command._read_json`; returns None for a header that is not usual."""

usual_properties: Final[Callable[[Message, str], str | None] | None] = getattr(_fast, "usual_properties", None)
"""`encode_properties` as text; returns None for a message or an id that is not usual."""

usual_size: Final[Callable[[object], int] | None] = getattr(_fast, "usual_size", None)
"""`batch.estimated_size` of a `Message` that fits into any batch of its topic and has no properties; 0 for anything
else.
"""

SendResults = Callable[[MessageQueue, int, Sequence[str], list[str], SendStatus], list[SendResult]]
send_results: Final[SendResults | None] = getattr(_fast, "send_results", None)
"""As `batch.send_results`."""
