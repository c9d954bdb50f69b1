"""Messages that cannot be sent: a value with the reason, and which errors are a message's own fault."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from rmqio.errors import (
    InvalidParameter,
    LocalError,
    MessageIllegal,
    NoPermission,
    RmqioError,
    SetupError,
)
from rmqio.model import Message

_REFUSES_MESSAGE: Final = (LocalError, MessageIllegal, InvalidParameter)

_FORBIDDEN_TOPIC: Final = re.compile(r"has no permission to access Topic:|No default permission for ")
"""How authorization refuses a topic: DefaultAuthorizationHandler of 5.x, PlainPermissionManager before it."""

MAX_ELEMENT_TEXT: Final = 1_000


class FailedMessage(NamedTuple):
    """A message that was not sent because it never can be; the runner retries all other failures.

    Nothing of it was stored, unless an earlier try of the same bundle stored it.
    """

    message: Message | None
    """None when the element produced no message, or one whose fields have wrong types."""
    element: str
    """`repr` of the input element, cut to 1,000 characters."""
    topic: str | None
    """The target topic; None when nothing named a topic."""
    error: str
    """The error's class name."""
    reason: str
    """The error's text."""
    position: int | None = None
    """The value's index in its batch; None: it was an element of its own, or the whole batch."""


def refuses_message(error: RmqioError) -> bool:
    """Return whether one message of the batch is at fault, so that the others would pass."""
    return isinstance(error, _REFUSES_MESSAGE) and not isinstance(error, SetupError)


def refuses_topic(error: RmqioError) -> bool:
    """Return whether we are authenticated but may not write to this topic.

    The code alone is not enough: a broker also uses it for a wrong signature, an unknown user, and when it accepts no
    messages at all.
    """
    return isinstance(error, NoPermission) and _FORBIDDEN_TOPIC.search(error.remark or "") is not None


def element_text(element: Any) -> str:
    """Return `repr`, cut; if `repr` fails, the element's type."""
    try:
        text = repr(element)
    except Exception:  # noqa: BLE001  # it is a user's code, and the element is on its way out because of an error
        text = f"<{type(element).__name__}>"
    return text if len(text) <= MAX_ELEMENT_TEXT else text[: MAX_ELEMENT_TEXT - 3] + "..."
