"""The subjects of the faults: pipelines on some runner, which are followed, killed, drained and audited."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from rmqio.client.client import RemotingQueueClient
from rmqio.local.config import Config
from rmqio.model import Record
from rmqio.security import Security
from tests.chaos.audit import Audit
from tests.chaos.faults import Fault
from tests.helpers.check import read_topic
from tests.helpers.ledgers.ledger import Sent

SOURCE: Final = "chaos-source"
Records = Sequence[Record]


@dataclass(frozen=True)
class Setting:
    """The surroundings in which pipelines run.

    `name_server` and `security` lead through the proxies, which break what goes through them; `client` past them.
    """

    name_server: str
    security: Security
    client: RemotingQueueClient
    folder: Path

    @property
    def flags(self) -> list[str]:
        """The options of a program."""
        mapped = dict(self.security.address_map).items()
        pairs = (f"--address_map={origin}={target}" for origin, target in mapped)
        return [f"--name_server={self.name_server}", f"--source={SOURCE}", *pairs]


class Subject(Protocol):
    """Pipelines on one runner. All but `faults` is called by one thread; strikes and repairs of faults by another."""

    title: str
    brokers: Mapping[str, Config]
    """The brokers that it wants, as `Cluster` takes them."""
    sinks: Mapping[str, int]
    """Topics that it writes to, with their numbers of queues for each broker."""
    starts_in_s: float
    """The longest time until it reads."""
    drains_in_s: float
    waits_after_a_fault: bool
    """Whether the next fault waits until it reads again."""

    @property
    def opening(self) -> Sequence[Fault]:
        """The faults that every run begins with, however short it is."""

    def set_up(self, setting: Setting) -> None:
        """Before anything else."""

    def start(self) -> None: ...

    def kill(self) -> None:
        """All that it has started. Idempotent."""

    def look(self) -> None:
        """Take what there is to see of it. Raises `AssertionError` if it has ended by itself."""

    def is_reading(self) -> bool:
        """Whether it has done anything since it was started last."""

    def faults(self) -> Sequence[Fault]:
        """Faults of its own."""

    def progress(self) -> str: ...

    def missing(self, stored: Records) -> str | None:
        """Says what is left to be done of what is stored; None: nothing. Called again and again while it drains."""

    def end(self) -> None:
        """Stop it, by its own means where it has some. Raises `AssertionError` if that fails."""

    def audits(self, stored: Records) -> list[Audit]:
        """When it has ended."""

    def figures(self) -> Mapping[str, str]: ...


def contents(client: RemotingQueueClient, topic: str, what: Callable[[Record], object]) -> Sent:
    """All that is in a topic, by queue and offset."""
    found: dict[object, dict[int, object]] = {queue: {} for queue in client.queues(topic)}
    for record in read_topic(client, topic):
        found[record.queue][record.queue_offset] = what(record)
    return found  # type: ignore[return-value]


def ids_of(stored: Records) -> Sent:
    """The ids of the source's messages by queue and offset."""
    found: dict[object, dict[int, object]] = {}
    for record in stored:
        found.setdefault(record.queue, {})[record.queue_offset] = record.body.decode()
    return found  # type: ignore[return-value]
