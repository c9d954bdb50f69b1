"""Finds single messages on all brokers, by unique id, by key, and by the broker's own id."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Final

from rmqio.client.admin.admin import Admin
from rmqio.errors import BrokerSystemError, CorruptMessage, LocalError, TransportError
from rmqio.model import UNIQ_KEY, BrokerData, Record
from rmqio.wire import queries
from rmqio.wire.command import Command

MOST: Final = 64
"""The most that a broker answers to one query by key."""
_INDEX_STEP_MS: Final = 1_000
"""The times of a broker's index are whole seconds since its file began, rounded down."""
_OFFSET_ID: Final = re.compile("[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")


class MessageQueries:
    """Asks the brokers of a cluster for messages of a topic. Results are sorted by store time.

    A replica is asked if its master does not answer. A broker of which nobody answers is left out, see `away`; it is
    not asked again. Raises `TransportError` if no broker answers, and `CorruptMessage` if what a broker has found
    cannot be decoded, and nothing else was found.
    """

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._silent: dict[str, TransportError] = {}
        """The servers that did not answer, by address."""
        self.away: dict[str, str] = {}
        """The brokers of which nobody answered, and why: their messages are not among the results."""
        self.may_have_more: set[str] = set()
        """The brokers that answered as many messages as they answer at most."""
        self.from_replica: dict[str, str] = {}
        """The brokers whose replica answered in place of its master, and why. It may lack the newest messages."""

    def by_unique_id(self, topic: str, message_id: str) -> list[Record]:
        """Return the messages with a unique id (UNIQ_KEY): several if a writer has repeated itself."""
        command = queries.query_message(self._admin.wire_name(topic), message_id, is_unique_id=True, most=MOST)
        found = self._ask(topic, command, f"message {message_id!r} of topic {topic!r}")
        return [record for record in found if record.get_property(UNIQ_KEY) == message_id]

    def by_key(self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int | None = None) -> list[Record]:
        """Return the messages with a business key that were stored in a time, whose end is exclusive: of each broker
        the newest `MOST` at most.
        """
        times = {"begin_ms": max(0, begin_ms - _INDEX_STEP_MS)} | ({} if end_ms is None else {"end_ms": end_ms})
        command = queries.query_message(self._admin.wire_name(topic), key, is_unique_id=False, most=MOST, **times)
        found = self._ask(topic, command, f"key {key!r} of topic {topic!r}")
        found = [each for each in found if begin_ms <= each.store_timestamp_ms and key in each.keys]
        return found if end_ms is None else [each for each in found if each.store_timestamp_ms < end_ms]

    def by_offset_id(self, topic: str, message_id: str) -> list[Record]:
        """Return the message with a broker's id (`Record.offset_message_id`): that broker is asked, and no other.

        Raises `LocalError` if the text is not such an id, or its broker is not one of the cluster.
        """
        if not _OFFSET_ID.fullmatch(message_id):
            raise LocalError(f"{message_id!r} is not a message id: it must have 32 hexadecimal digits, or 56 with IPv6")
        raw = bytes.fromhex(message_id)
        host, port, position = ipaddress.ip_address(raw[:-12]), int.from_bytes(raw[-12:-8], "big"), raw[-8:]
        address = f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"
        command = queries.view_message(self._admin.wire_name(topic), int.from_bytes(position, "big", signed=True))
        brokers = [each for each in self._admin.brokers() if address in each.addresses.values()]
        if not brokers:
            raise LocalError(f"message id {message_id!r} names the broker {address}, which is not one of the cluster")
        try:
            found = self._ask(topic, command, f"message {message_id!r}", lambda broker: broker in brokers)
        except BrokerSystemError:  # its answer for a position where no message begins
            return []
        return [record for record in found if record.offset_message_id == message_id.upper()]

    def _ask(
        self, topic: str, command: Command, what: str, is_wanted: Callable[[BrokerData], bool] = lambda broker: True
    ) -> list[Record]:
        found: list[Record] = []
        corrupt: list[CorruptMessage] = []
        brokers = [broker for broker in self._admin.brokers() if is_wanted(broker)]
        for broker in brokers:
            answer = self._answer(broker, command)
            if answer is None:
                continue
            decoded = queries.parse_messages(answer, broker.broker, f"{what} on {broker.broker}")
            if len(decoded.records) + len(decoded.corrupt) >= MOST:
                self.may_have_more.add(broker.broker)
            found += decoded.records
            corrupt += decoded.corrupt
        if len(self.away) >= len(brokers) and all(broker.broker in self.away for broker in brokers):
            reasons = "; ".join(f"{name}: {reason}" for name, reason in sorted(self.away.items()))
            raise TransportError(f"{what}: no broker answers ({reasons or 'no broker is known'})")
        found = [record._replace(topic=self._admin.users_name(record.topic) or record.topic) for record in found]
        found = [record for record in found if record.topic == topic]
        if corrupt and not found:  # "no such message" would be wrong
            raise corrupt[0]
        return sorted(found, key=lambda record: (record.store_timestamp_ms, record.queue, record.queue_offset))

    def _answer(self, broker: BrokerData, command: Command) -> Command | None:
        """Return the answer of the master, or else of a replica; None if nobody answers."""
        reasons: list[str] = [] if broker.master is not None else ["it has no master now"]
        for _, address in sorted(broker.addresses.items()):
            error = self._silent.get(address)
            if error is None:
                try:
                    answer = self._admin.answer_at(address, command)
                except TransportError as failed:
                    error = self._silent[address] = failed
                else:
                    if reasons:
                        self.from_replica[broker.broker] = reasons[0]
                    return answer
            reasons.append(str(error))
        self.away[broker.broker] = reasons[0] if reasons else "no address of it is known"
        return None
