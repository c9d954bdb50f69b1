"""What happens to a message that cannot be sent: a value that says why, and which errors are a message's own fault."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from rmqio.errors import InvalidParameter, LocalError, MessageIllegal
from rmqio.model import Message

REFUSES_MESSAGE: Final = (LocalError, MessageIllegal, InvalidParameter)
"""One message of the batch is at fault; the others would pass."""

MAX_ELEMENT_TEXT: Final = 1_000


class FailedMessage(NamedTuple):
    """A message that was not sent because it never can be; everything else is retried by the runner.

    Nothing of it was stored, unless an earlier try of the same bundle stored it.
    """

    message: Message | None
    """None when the element gave no message, or one whose fields have wrong types."""
    element: str
    """`repr` of the element as it came in, cut to 1,000 characters."""
    topic: str | None
    """Where it should have gone to; None when nothing named a topic."""
    error: str
    """The error's class name."""
    reason: str
    """The error's text."""


def element_text(element: Any) -> str:
    """`repr`, cut. Of an element whose `repr` fails, its type."""
    try:
        text = repr(element)
    except Exception:  # noqa: BLE001  # it is a user's code, and the element is on its way out because of an error
        text = f"<{type(element).__name__}>"
    return text if len(text) <= MAX_ELEMENT_TEXT else text[: MAX_ELEMENT_TEXT - 3] + "..."
