"""The identity of a message: what is equal in the topic that it came from and in the one that it went to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from rmqio.batches import place_ids
from rmqio.dead_letters import letters
from rmqio.errors import LocalError
from rmqio.hints import did_you_mean
from rmqio.model import UNIQ_KEY, MessageQueue, Record

Text = Callable[[Record], str | None]
"""The identity of a message as text; None: it has none."""

KINDS: Final = ("auto", "id", "place", "keys", "body", "field:NAME", "property:NAME")


@dataclass(frozen=True, slots=True)
class Identity:
    """How messages are told apart.

    Args:
      name: as `--by` takes it.
      of_source: of a message of the first topic.
      of_sink: of a message of the second topic.
      of_letter: of a dead letter of a message of the first topic.
    """

    name: str
    of_source: Text
    of_sink: Text
    of_letter: Text
    of_copy: Callable[[MessageQueue, int, int], str] | None = None
    """The identity of a further value of a message in a batch, by queue, offset and the number of the value; 0: the
    first one. None: it is that of the first one."""
    steps: str = ""
    """The labels that are a part of ids that are derived from places."""


def hash_of(text: str) -> bytes:
    """Return the 8 bytes by which an identity is compared. Among 100 million, two are equal by chance once in 3,700."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def parse_identity(text: str, steps: str = "") -> Identity:
    """Return the identity that a `--by` names; `steps` are those of `Batch.steps`, for places. Raises `LocalError`."""
    kind, _, name = text.partition(":")
    if kind in ("field", "property"):
        if not name:
            raise LocalError(f"--by={text}: the name is missing, e.g. --by={kind}:order_id")
        of = _field(name) if kind == "field" else _property(name)
        return Identity(text, of, of, of)
    if text == "id":
        return Identity("id", unique_id, unique_id, _id_of_letter)
    if text == "place":
        return _by_place(steps)
    if text == "keys":
        return Identity("keys", keys, keys, keys)
    if text == "body":
        return Identity("body", _body, _body, _body)
    named = [each.partition(":")[0] for each in KINDS]
    raise LocalError(f"--by={text} is not {', '.join(KINDS)}{did_you_mean(kind, named)}")


def unique_id(record: Record) -> str | None:
    """Return the unique id that the producer has given (UNIQ_KEY); None: it gave none."""
    return record.get_property(UNIQ_KEY)


def keys(record: Record) -> str | None:
    """Return the business keys in one text."""
    return " ".join(record.keys) or None


def _by_place(steps: str) -> Identity:
    def of_source(record: Record) -> str:
        return place_ids(record.queue, (record.queue_offset,), steps)[0]

    def of_letter(record: Record) -> str | None:
        place = origin_of(record)
        return None if place is None else place_ids(place[0], (place[1],), steps)[0]

    def of_copy(queue: MessageQueue, offset: int, number: int) -> str:
        return place_ids(queue, (offset,), f"{steps}\0{number}" if number else steps)[0]

    return Identity("place", of_source, unique_id, of_letter, of_copy, steps)


def origin_of(letter: Record) -> tuple[MessageQueue, int] | None:
    """Return the place of the message that a dead letter is about; None if it is unknown."""
    parts = (letter.get_property(letters.ORIGIN) or "").rsplit("/", 3)
    if len(parts) != 4 or not (parts[2].isascii() and parts[2].isdigit() and parts[3].isascii() and parts[3].isdigit()):
        return None
    return MessageQueue(parts[0], parts[1], int(parts[2])), int(parts[3])


def _id_of_letter(record: Record) -> str | None:
    return record.get_property(letters.MESSAGE_ID)


def _body(record: Record) -> str | None:
    return hashlib.blake2b(record.body, digest_size=16).hexdigest()


def _property(name: str) -> Text:
    def of(record: Record) -> str | None:
        return record.get_property(name)

    return of


def _field(path: str) -> Text:
    names = path.split(".")

    def of(record: Record) -> str | None:
        try:
            value: Any = json.loads(record.body)
        except (ValueError, RecursionError):
            return None
        for name in names:
            if not isinstance(value, dict) or name not in value:
                return None
            value = value[name]
        return value if value is None or isinstance(value, str) else json.dumps(value, sort_keys=True)

    return of


def candidates(steps: Iterable[str]) -> list[Identity]:
    """Return what `--by=auto` chooses from: first unique ids, then ids that are derived from places."""
    return [parse_identity("id"), *(parse_identity("place", each) for each in dict.fromkeys(("", *steps)))]


# Whether messages that look lost may have arrived, by an id with a label that is not known here.
#
# The table, which is in docs/operate/audit.md, too:
#
# | what is known | messages that look lost are | |---|---| | the id has no labels: `--by` is none or not place | lost
# | | no message of the second topic is unexplained | lost | | `--steps` gives the labels, and something has arrived
# by each of them | lost | | nothing has arrived by a label that is given, or it was not tried since the topics do not
# fit into memory | in doubt | | no labels are given: what is behind the last `Audit`, or beside it, can add some to
# those of its sketches | in doubt |
#
# A message of the second topic is explained if it is of a message of the first one, also of one that was not read: it
# was sent before the range or after it, or retention has deleted it.

_MOST_TRIED: Final = 400_000
"""Places that are tried as the origin of unexplained messages, since each takes 3 us for each label."""


def outside(
    ids: Collection[int], among: Collection[Identity], ranges: Mapping[MessageQueue, tuple[range, range]]
) -> set[int]:
    """Return which of the hashes are of messages of the first topic that were not read.

    Args:
      ranges: by queue: the offsets before those that were read, and behind them. The nearest are tried.
    """
    most = _MOST_TRIED // (2 * max(1, len(ranges)))
    found: set[int] = set()
    wanted = np.array([*ids], np.uint64)
    for queue, (before, behind) in ranges.items():
        for identity in among:
            if identity.of_copy is None:
                continue
            texts = [identity.of_copy(queue, offset, 0) for each in (before[-most:], behind[:most]) for offset in each]
            hashes = np.frombuffer(b"".join(map(hash_of, texts)), ">u8").astype(np.uint64)
            found.update(hashes[np.isin(hashes, wanted)].tolist())
    return found


def why_in_doubt(
    given: Collection[str], counted: Collection[str], tried: Collection[str], arrived: Collection[str]
) -> str:
    """Return why the labels do not decide; empty: they do.

    Args:
      given: the labels that ids of the second topic have, as --steps says; "": none.
      counted: those that the sketches of the last Audit have.
      tried: the labels with which messages were looked for.
      arrived: those by which some were found.
    """
    if untried := {*given, *counted}.difference(tried):
        return (
            f"messages that do not fit into --memory_mb are looked for with one label, here {_texts(tried)}, and not "
            f"with {_texts(untried)}; give more memory"
        )
    if not given and counted:
        return (
            f"the last Audit has the labels {_texts(counted)}, but MapRecords and SQL behind it, or beside it, can add "
            "others; give all labels as --steps (--steps '' if there are none)"
        )
    if not given:
        return (
            "these ids contain the labels of MapRecords and of SQL, which are not known here; give them as --steps "
            "(--steps '' if there are none), or give --audit_topic"
        )
    if missing := [label for label in given if label not in arrived]:
        return f"nothing has arrived by the label {_texts(missing)} of --steps; correct the labels with --steps"
    return ""


def _texts(labels: Collection[str]) -> str:
    return " and ".join(map(repr, sorted(labels)))
