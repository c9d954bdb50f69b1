"""Setting a group's offsets: how, and whether it took.

There are two ways, and each is wrong where the other is right:

- A *commit* (request 15) is taken at once and leaves nothing behind. A broker checks nothing: a member that is online
  commits what it has in memory a few seconds later, and that was it.
- RocketMQ's *reset* (request 222) is kept by the broker until somebody pulls under the group; until then commits are
  answered with success and ignored. A member is told at its next pull and goes on there. With nobody online it stays
  pending, and a reader that pulls under a group of its own, as pipelines of rmqio do, cannot commit until it takes it.

So: a commit while nobody is online, else a reset. A commit that a pending reset swallows becomes a reset, which
replaces the one that pends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rmqio.cli.connect import short
from rmqio.cli.errors import CommandFailed
from rmqio.cli.output import note, plural
from rmqio.cli.queues import QueueState
from rmqio.errors import BrokerError, CommitIgnored, RmqioError
from rmqio.interfaces import QueueClient
from rmqio.model import MessageQueue

if TYPE_CHECKING:
    from rmqio.client.admin import Admin

Method = Literal["commit", "reset"]


@dataclass(frozen=True, slots=True)
class Change:
    """One queue, and the offset that it is to have."""

    state: QueueState
    target: int

    @property
    def is_needed(self) -> bool:
        return self.state.committed != self.target

    @property
    def by(self) -> int | None:
        """How far forward (messages skipped) or, negative, back (messages again); None without an offset so far."""
        return None if self.state.committed is None else self.target - self.state.committed


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done."""

    topic: str
    group: str
    method: Method
    members: Sequence[str] | None
    """Client ids of who is online; None: not known."""
    changes: Sequence[Change]


def choose_method(
    admin: Admin, wanted: Literal["auto", "commit", "reset"], group: str, topic: str
) -> tuple[Method, Sequence[str] | None]:
    """How to set the offsets, and who is online. Raises `CommandFailed` when that decides and cannot be found out."""
    try:
        members = admin.group_members(group, topic)
    except BrokerError as error:
        if wanted == "auto":
            raise CommandFailed(
                f"whether members of group {group!r} are online cannot be found out ({error}); if there are none,"
                " use --method commit"
            ) from error
        return wanted, None
    if wanted == "auto":
        return ("reset" if members else "commit"), members
    if wanted == "commit" and members:
        note(
            f"{plural(len(members), 'member')} of group {group!r} online will commit over it; --method reset tells them"
        )
    return wanted, members


def execute(plan: Plan, client: QueueClient, admin: Admin) -> set[Method]:
    """Set the offsets that are not yet right; how. Raises `CommandFailed` saying which queues are done."""
    done: list[str] = []
    used: set[Method] = set()
    for change in plan.changes:
        if not change.is_needed:
            continue
        queue = change.state.queue
        try:
            used.add(_set(plan, queue, change.target, client, admin))
        except RmqioError as error:
            so_far = f"; set before: {', '.join(done)}" if done else "; nothing has been changed"
            raise CommandFailed(f"queue {short(queue)} not set: {error}{so_far}") from error
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
    """What the brokers say now, queue by queue."""
    return [client.committed_offset(plan.group, change.state.queue) for change in plan.changes]
