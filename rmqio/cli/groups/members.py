"""The online members of a consumer group, in words."""

from __future__ import annotations

from collections.abc import Sequence

from rmqio.command_line.output import shortened
from rmqio.errors import counted


def members_text(members: Sequence[str] | None) -> str:
    """Say who is online; None: unknown."""
    if members is None:
        return "members online unknown"
    return f"{counted(len(members), 'member')} online: {shortened(members)}" if members else "nobody online"
