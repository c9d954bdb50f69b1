"""Nexmark's events: persons who register, auctions that they open, and bids on them; the same ones for each seed.

Of fifty events one is a person, three are auctions, and 46 are bids. Times are a fixed number of milliseconds apart,
and events come up to three seconds out of order.
"""

from __future__ import annotations

import datetime as dt
import heapq
import json
from collections.abc import Iterator
from random import Random
from typing import Any, Final, NamedTuple

PERSON, AUCTION, BID = 0, 1, 2
"""The event types."""
START: Final = dt.datetime(2024, 2, 1, 18, 59, 30)
"""The time of the first event: half a minute before query 14 calls the time of day by another name."""
DISORDER_MS: Final = 3000
"""The most by which an event comes late; the tables' watermark waits for a second more."""
_EPOCH: Final = 50
_PERSONS, _AUCTIONS = 1, 3
_FIRST_ID: Final = 1000
_STATES: Final = {
    "AZ": "Phoenix",
    "CA": "Los Angeles",
    "ID": "Boise",
    "OR": "Portland",
    "WA": "Seattle",
    "WY": "Cheyenne",
}
_FIRST_NAMES: Final = ("Ann", "Ben", "Chen", "Dora", "Emil", "Fatma", "Günter", "Hana", "Ivo", "Jin", "Kofi")
_LAST_NAMES: Final = ("Abe", "Berg", "Cruz", "Diaz", "Egede", "Frost", "Gál", "Haas", "Ito")
_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_ACTIVE_PERSONS, _ACTIVE_AUCTIONS = 100, 60
"""The newest ones, who sell and bid and who are bid on."""


class Event(NamedTuple):
    """An event as a row of the table `events`.

    Attributes:
      event_type: which of the three it is.
      row: its columns, with times as datetimes.
      at: its time.
    """

    event_type: int
    row: dict[str, Any]
    at: dt.datetime

    def body(self) -> bytes:
        """The event as JSON."""
        rows: list[Any] = [None, None, None]
        rows[self.event_type] = self.row
        document = dict(zip(("event_type", "person", "auction", "bid"), (self.event_type, *rows), strict=True))
        return json.dumps(document, default=_text, ensure_ascii=False, separators=(",", ":")).encode()


def events(count: int, *, apart_ms: int = 10, seed: int = 0) -> Iterator[Event]:
    """Yields events in the order in which they come: that of their times, but for up to three seconds."""
    random = Random(seed)
    waiting: list[tuple[float, int, Event]] = []
    for number in range(count):
        at_ms = number * apart_ms
        while waiting and waiting[0][0] <= at_ms:
            yield heapq.heappop(waiting)[2]
        event = _event(number, START + dt.timedelta(milliseconds=at_ms), random, apart_ms)
        heapq.heappush(waiting, (at_ms + random.random() ** 4 * DISORDER_MS, number, event))
    while waiting:
        yield heapq.heappop(waiting)[2]


def counts(count: int) -> tuple[int, int, int]:
    """Returns how many persons, auctions and bids the first events are."""
    epochs, more = divmod(count, _EPOCH)
    persons = epochs * _PERSONS + min(more, _PERSONS)
    auctions = epochs * _AUCTIONS + min(max(0, more - _PERSONS), _AUCTIONS)
    return persons, auctions, count - persons - auctions


def _event(number: int, at: dt.datetime, random: Random, apart_ms: int) -> Event:
    """Each kind refers to what came before it, so that joins find partners. Bids begin after a person and auctions."""
    persons, auctions, _ = counts(number)
    place = number % _EPOCH
    if place < _PERSONS:
        return Event(PERSON, _person(_FIRST_ID + persons, at, random), at)
    person = _recent(persons, _ACTIVE_PERSONS, random)
    if place < _PERSONS + _AUCTIONS:
        return Event(AUCTION, _auction(_FIRST_ID + auctions, person, at, random, apart_ms), at)
    return Event(BID, _bid(_recent(auctions, _ACTIVE_AUCTIONS, random), person, at, random), at)


def _recent(count: int, active: int, random: Random) -> int:
    """The id of one of the newest: the newest of all half of the time, as if everybody looked at it."""
    back = random.randrange(min(2, count)) if random.random() < 0.5 else random.randrange(min(active, count))
    return _FIRST_ID + count - 1 - back


def _person(number: int, at: dt.datetime, random: Random) -> dict[str, Any]:
    first, last = random.choice(_FIRST_NAMES), random.choice(_LAST_NAMES)
    state = random.choice(list(_STATES))
    return {
        "id": number,
        "name": f"{first} {last}",
        "emailAddress": f"{_word(random, 7)}@{_word(random, 5)}.com",
        "creditCard": " ".join(f"{random.randrange(10_000):04}" for _ in range(4)),
        "city": _STATES[state],
        "state": state,
        "dateTime": at,
        "extra": _extra(random),
    }


def _auction(number: int, seller: int, at: dt.datetime, random: Random, apart_ms: int) -> dict[str, Any]:
    initial = _price(random)
    lives = 1 + random.randrange(2 * _ACTIVE_AUCTIONS * _EPOCH // _AUCTIONS)  # in events: as long as it is bid on
    return {
        "id": number,
        "itemName": _word(random, 12),
        "description": " ".join(_word(random, 6) for _ in range(4)),
        "initialBid": initial,
        "reserve": initial + _price(random),
        "dateTime": at,
        "expires": at + dt.timedelta(milliseconds=lives * apart_ms),
        "seller": seller,
        "category": 10 + random.randrange(5),
        "extra": _extra(random),
    }


def _bid(auction: int, bidder: int, at: dt.datetime, random: Random) -> dict[str, Any]:
    folders = "/".join(_word(random, 4) for _ in range(3))
    if random.random() < 0.5:
        channel = random.choice(_CHANNELS)
        url = f"https://www.nexmark.com/{folders}/item.htm?query=1"
    else:
        number = random.randrange(1000)
        channel = f"channel-{number}"
        url = f"https://www.nexmark.com/{folders}/item.htm?query=1"
        url += f"&channel_id={number}" if random.random() < 0.9 else ""
    return {
        "auction": auction,
        "bidder": bidder,
        "price": _price(random),
        "channel": channel,
        "url": url,
        "dateTime": at,
        "extra": _extra(random),
    }


def _price(random: Random) -> int:
    """From a dollar to a million, in cents: as many between 1 and 10 dollars as between 100,000 and a million."""
    return int(10.0 ** (random.random() * 6) * 100)


def _word(random: Random, length: int) -> str:
    return "".join(random.choices(_LETTERS, k=length))


def _extra(random: Random) -> str:
    return _word(random, random.randrange(20, 60))


def _text(value: Any) -> str:
    return str(value.isoformat(sep=" ", timespec="milliseconds"))
