"""Remarks about a group's position in queues: what was lost, what is missing, what cannot be."""

from __future__ import annotations

from collections.abc import Sequence

from rmqio.command_line.connect import short
from rmqio.command_line.contents import QueueState
from rmqio.errors import counted


def remarks(states: Sequence[QueueState], group: str | None) -> list[str]:
    """Return what the numbers alone do not say."""
    if group is None:
        return []
    texts = []
    without = [state for state in states if state.committed is None]
    if without:
        held = sum(state.messages for state in without)
        texts.append(
            f"group {group!r} has no offset in {counted(len(without), 'queue')}, with {counted(held, 'message')} that"
            " the lag does not include"
        )
    for state in states:
        if state.lost:
            texts.append(
                f"{short(state.queue)}: {counted(state.lost, 'message')} from offset {state.committed} on were deleted"
                f" by retention before group {group!r} read them"
            )
        if state.beyond:
            texts.append(
                f"{short(state.queue)}: the offset {state.committed} of group {group!r} lies {state.beyond:,} past"
                " the queue's end: the topic was recreated or truncated; `rmqio offsets reset` corrects it"
            )
    return texts
