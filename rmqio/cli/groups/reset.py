"""Sets a group's offsets, and checks the result.

There are two ways, and each is wrong where the other is right:

- A *commit* (request 15) takes effect at once and leaves no state behind. The broker checks nothing: a member that is
  online commits its offsets from memory a few seconds later, and so undoes the change.
- RocketMQ's *reset* (request 222) is kept by the broker until a client pulls under the group. Until then, the broker
  answers commits with success and ignores them. A member learns of the reset at its next pull and resumes there. With
  no member online, the reset stays pending: a reader that pulls under a group of its own, as pipelines of rmqio do,
  cannot commit until it takes the reset.

So we commit while no member is online, and reset otherwise. If a pending reset swallows a commit, we reset instead,
which replaces the pending one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rmqio.command_line.connect import short
from rmqio.command_line.contents import QueueState
from rmqio.command_line.errors import CommandFailed
from rmqio.command_line.output import note
from rmqio.errors import BrokerError, CommitIgnored, RmqioError, counted
from rmqio.interfaces import QueueClient
from rmqio.model import MessageQueue

if TYPE_CHECKING:
    from rmqio.client.admin import Admin

Method = Literal["commit", "reset"]


@dataclass(frozen=True, slots=True)
class Change:
    """One queue and its new offset."""

    state: QueueState
    target: int

    @property
    def is_needed(self) -> bool:
        return self.state.committed != self.target

    @property
    def by(self) -> int | None:
        """How far forward (messages skipped) or, if negative, back (messages repeated); None if there was no offset."""
        return None if self.state.committed is None else self.target - self.state.committed


@dataclass(frozen=True, slots=True)
class Plan:
    """The offsets to set, and the group and queues that they belong to."""

    topic: str
    group: str
    method: Method
    members: Sequence[str] | None
    """Client ids of the members online; None: unknown."""
    changes: Sequence[Change]


def choose_method(
    admin: Admin, wanted: Literal["auto", "commit", "reset"], group: str, topic: str
) -> tuple[Method, Sequence[str] | None]:
    """Return the method and the members online. Raises `CommandFailed` if these decide and are unknown."""
    try:
        members = admin.group_members(group, topic)
    except BrokerError as error:
        if wanted == "auto":
            raise CommandFailed(
                f"cannot find out whether members of group {group!r} are online ({error}); if there are none,"
                " use --method commit"
            ) from error
        return wanted, None
    if wanted == "auto":
        return ("reset" if members else "commit"), members
    if wanted == "commit" and members:
        note(
            f"{counted(len(members), 'member')} of group {group!r} online will overwrite the commit; use --method reset"
        )
    return wanted, members


def execute(plan: Plan, client: QueueClient, admin: Admin) -> set[Method]:
    """Set the offsets that differ, and return the methods used. Raises `CommandFailed`, which names the queues done."""
    done: list[str] = []
    used: set[Method] = set()
    for change in plan.changes:
        if not change.is_needed:
            continue
        queue = change.state.queue
        try:
            used.add(_set(plan, queue, change.target, client, admin))
        except RmqioError as error:
            so_far = f"; already set: {', '.join(done)}" if done else "; nothing has been changed"
            raise CommandFailed(f"cannot set the offset of queue {short(queue)}: {error}{so_far}") from error
        done.append(short(queue))
    return used


def _set(plan: Plan, queue: MessageQueue, offset: int, client: QueueClient, admin: Admin) -> Method:
    if plan.method == "commit":
        try:
            client.commit_offset(plan.group, queue, offset)
        except CommitIgnored:
            pass
        else:
            return "commit"
    admin.reset_group_offset(plan.group, queue, offset)
    return "reset"


def verify(plan: Plan, client: QueueClient) -> list[int | None]:
    """Return the offsets that the brokers report now, queue by queue."""
    return [client.committed_offset(plan.group, change.state.queue) for change in plan.changes]
