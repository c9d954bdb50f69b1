"""`rmqio trace`: follows one message through a pipeline. The ids of what comes of it are derived from its place."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from rmqio.batches import place_ids, steps_of_variant
from rmqio.cli.find import add_place, at_offset, by_id, item_of, note_silent, origin_of
from rmqio.cli.printing import Printer
from rmqio.command_line.arguments import QueueName, parse_topic
from rmqio.command_line.cluster import open_admin, queue_client, queues_of, short
from rmqio.command_line.output import CommandFailed, count, duration, print_json, safe_line, time_text
from rmqio.command_line.parser import new_command
from rmqio.errors import LocalError, counted
from rmqio.interfaces import QueueClient
from rmqio.model import UNIQ_KEY, MessageQueue, Record

if TYPE_CHECKING:
    from rmqio.client.admin import MessageQueries

_ORDINALS: Final = 4
"""Values of one record in a batch that are looked for."""
_MOST_REPLAYS: Final = 10
"""A message that fails each time is not followed for ever."""
_OF_REPLAY: Final = ", of the replay "
_MORE: Final = """\
A message that a pipeline of rmqio writes has an id that depends on the place of its source message, so it can be looked
up. Messages with the same unique id are found, too; a second one in a topic is shown as a copy. The labels of
MapRecords and MatchRules are part of the id: they come from --audit_topic or --steps. So is '/Select from TABLE' in
SQL, of a further statement with a number, e.g. '/Select from TABLE/2'. An alert's id also depends on
its rule: pass --rule. For a dead letter, the trace begins at the original message. It goes on with the message that
`rmqio replay` has sent again, which has an id and a place of its own.

exit status: 0 found in a topic of --to or in the dead letters, 1 not found or failed, 2 wrong usage

examples:
  rmqio trace orders --queue broker-a:3 --offset 17 --to bills
  rmqio trace orders --id 7F000001A1B218B4AAC2123456780000 --to bills
  rmqio trace orders --queue 3 --offset 17 --to bills --audit_topic hops"""


class Trail(NamedTuple):
    """A message that came of the source message."""

    kind: str
    """output, copy (of the source message, or of an output), dead letter or replay."""
    why: str
    """How its id is derived."""
    record: Record


class AtHop(NamedTuple):
    """The sketch of a hop of an `Audit`, for the block of a message."""

    hop: str
    sent: int
    passed: int
    is_same: bool
    message: Literal["passed", "missing", "doubled"] | None
    """The outcome of the message itself; None: the sketch does not tell."""


def add_commands(commands: Any) -> None:
    """Add `trace`."""
    parser = new_command(commands, "trace", _trace, "follow one message through a pipeline", more=_MORE)
    parser.add_argument("topic", type=parse_topic, metavar="TOPIC")
    add_place(parser)
    add = parser.add_argument
    add("--to", dest="sinks", type=parse_topic, action="append", default=[], metavar="TOPIC",
        help="a topic that it may be in; repeatable")  # fmt: skip
    add("--dead_letter_topic", type=parse_topic, metavar="TOPIC", help="the topic of the pipeline's dead letters")
    add("--audit_topic", type=parse_topic, metavar="TOPIC", help="the topic of the pipeline's Audit transforms")
    add("--steps", action="append", default=[], metavar="TEXT", help="labels of transforms: '/Parse'; repeatable")
    add("--rule", dest="rules", action="append", default=[], metavar="ID", help="find the alerts of a rule; repeatable")
    add("--json", action="store_true", help="print one JSON document")


def _trace(arguments: argparse.Namespace) -> int:
    from rmqio.client.admin import MessageQueries

    if (arguments.message_id is None) == (arguments.offset is None):
        raise LocalError("give the message's --id, or its --queue and --offset")
    if not arguments.sinks and arguments.dead_letter_topic is None:
        raise LocalError("give --to with a topic to which the message may have been written, or --dead_letter_topic")
    with queue_client(arguments) as client, open_admin(arguments) as admin:
        for topic in (*arguments.sinks, arguments.dead_letter_topic, arguments.audit_topic):
            if topic is not None:
                queues_of(client, topic)
        queries = MessageQueries(admin)
        letter, source = _source(client, queries, arguments)
        steps = ["", *arguments.steps]
        hops: list[AtHop] = []
        if arguments.audit_topic is not None:
            from rmqio.audit.hops import hops_of_block

            found, known = hops_of_block(client, arguments.audit_topic, source.queue, source.queue_offset)
            hops = [AtHop(*each) for each in found]
            steps += known
        trails = list(_each_once(source, _trails(queries, source, arguments, list(dict.fromkeys(steps)))))
        note_silent(queries)
        _show(arguments, letter, source, hops, trails)
    return 0 if any(trail.kind != "copy" for trail in trails) else 1


def _source(
    client: QueueClient, queries: MessageQueries, arguments: argparse.Namespace
) -> tuple[Record | None, Record]:
    """The letter that was named, if it was one, and the source message."""
    if arguments.message_id is not None:
        queues_of(client, arguments.topic)
        found = by_id(queries, arguments.topic, arguments.message_id)
    else:
        found = list(at_offset(client, arguments.topic, arguments.queue, arguments.offset))
    if not found:
        where = " on the brokers that answer" if note_silent(queries) else ""
        raise CommandFailed(f"topic {arguments.topic!r} has no such message{where}")
    record = found[0]
    origin = origin_of(record)
    if origin is None:
        return None, record
    if "topic" not in origin:
        raise CommandFailed("the message is a dead letter without the place of the message that it is about")
    name = QueueName(origin["broker"], int(origin["queue_id"]))
    again = list(at_offset(client, origin["topic"], name, int(origin["queue_offset"])))
    if not again:
        raise CommandFailed("the message that the dead letter is about is no longer there")
    return record, again[0]


def _trails(
    queries: MessageQueries, source: Record, arguments: argparse.Namespace, steps: list[str], replays: int = 0
) -> Iterator[Trail]:
    """All that came of a message, which `replays` replays came before."""
    unique_id = source.get_property(UNIQ_KEY)
    if unique_id:
        for record in queries.by_unique_id(source.topic, unique_id):
            yield Trail("copy", "the same unique id", record)
    wanted: dict[str, str] = {unique_id: "the same unique id"} if unique_id else {}
    for each in steps:
        for ordinal in range(_ORDINALS):
            text = f"{each}\0{ordinal}" if ordinal else each
            why = f"its place{f' and steps {each}' if each else ''}{f', value {ordinal + 1}' if ordinal else ''}"
            wanted.setdefault(place_ids(source.queue, (source.queue_offset,), text)[0], why)
        for rule in arguments.rules:
            alert = place_ids(source.queue, (source.queue_offset,), steps_of_variant(each, rule))[0]
            wanted.setdefault(alert, f"its place{f' and steps {each}' if each else ''}, rule {rule}")
    for topic in arguments.sinks:
        for message_id, why in wanted.items():
            yield from (Trail("output", why, record) for record in queries.by_unique_id(topic, message_id))
    if arguments.dead_letter_topic is not None:
        for message_id, why in _letter_ids(source, arguments.sinks, list(wanted)).items():
            found = queries.by_unique_id(arguments.dead_letter_topic, message_id)
            for record in found:
                yield Trail("dead letter", why, record)
                yield from _replays(queries, record, arguments, steps, replays)


def _replays(
    queries: MessageQueries, record: Record, arguments: argparse.Namespace, steps: list[str], replays: int
) -> Iterator[Trail]:
    """The message of a dead letter that was sent again, and its own trails."""
    from rmqio.dead_letters.letters import read_letter

    letter = read_letter(record)
    for topic in dict.fromkeys((letter.topic, *arguments.sinks)):
        for again in queries.by_unique_id(topic, letter.message_id) if topic else ():
            yield Trail("replay", f"its dead letter {_place(record)}", again)
            if replays < _MOST_REPLAYS and topic not in arguments.sinks:
                for trail in _trails(queries, again, arguments, steps, replays + 1):
                    of_replay = "" if _OF_REPLAY in trail.why else f"{_OF_REPLAY}{_place(again)}"
                    if trail.kind != "copy":
                        yield trail._replace(why=f"{trail.why}{of_replay}")


def _each_once(source: Record, trails: Iterable[Trail]) -> Iterator[Trail]:
    """Leave out the source message, and repeated places; mark outputs with the topic and id of an earlier one."""
    seen = {(source.queue, source.queue_offset)}
    outputs: dict[tuple[str, str], Record] = {}
    for trail in trails:
        record = trail.record
        place = record.queue, record.queue_offset
        if place in seen:
            continue
        seen.add(place)
        if trail.kind == "output":
            first = outputs.setdefault((record.topic, record.message_id), record)
            if first is not record:
                trail = trail._replace(kind="copy", why=f"the same id as {_place(first)}")
        yield trail


def _letter_ids(source: Record, sinks: list[str], sink_ids: list[str]) -> dict[str, str]:
    """The ids that dead letters of a message can have: of a read or a function, and of a write."""
    from rmqio.dead_letters import letters

    origin = f"{source.topic}/{source.broker}/{source.queue_id}/{source.queue_offset}"
    found: dict[str, str] = {}
    for own in ({letters.MESSAGE_ID: source.message_id}, {}):
        said = {letters.ORIGIN: origin, **own}
        found.setdefault(letters.identity(said) or "", "a function or a read failed")
        for topic in sinks:
            for sink_id in sink_ids:
                more = {letters.SINK_TOPIC: topic, letters.SINK_MESSAGE_ID: sink_id}
                found.setdefault(letters.identity(said | more) or "", f"the write to {topic} failed")
    found.pop("", None)
    return found


# ---- output ---------------------------------------------------------------------------------------------------------


def _show(
    arguments: argparse.Namespace,
    letter: Record | None,
    source: Record,
    hops: list[AtHop],
    trails: list[Trail],
) -> None:
    printer = Printer(arguments.json, "auto", 0)
    if arguments.json:
        print_json(
            {
                "letter": None if letter is None else printer.fields(item_of(letter)),
                "source": printer.fields(item_of(source)),
                "hops": [each._asdict() for each in hops],
                "found": [
                    {"kind": each.kind, "why": each.why, **printer.fields(item_of(each.record))} for each in trails
                ],
            }
        )
        return
    if letter is not None:
        print(f"dead letter   {_place(letter)}")
    print(f"source        {_place(source)}   {time_text(source.store_timestamp_ms)}")
    print(f"              id {safe_line(source.message_id)}")
    if source.keys:
        print(f"              keys {safe_line(', '.join(source.keys))}")
    for hop in hops:
        print(f"hop           {safe_line(hop.hop)}: {_at_hop(hop)}")
    for trail in trails:
        record = trail.record
        after_ms = record.store_timestamp_ms - source.store_timestamp_ms
        print(f"{trail.kind:<14}{_place(record)}   {duration(after_ms)} later   by {safe_line(trail.why)}")
        print(f"              id {safe_line(record.message_id)}")
        if trail.kind == "dead letter" and (origin := origin_of(record)) is not None:
            print(f"              {safe_line(origin['error'])}: {safe_line(origin['reason'])}")
    has_labels = arguments.steps or arguments.audit_topic is not None
    unknown = "" if has_labels else " (labels of transforms are unknown: see --steps)"
    for topic in arguments.sinks:
        if not any(trail.kind == "output" and trail.record.topic == topic for trail in trails):
            print(f"nothing       in {topic} has an id that is derived from it{unknown}")


def _at_hop(hop: AtHop) -> str:
    """Say whether this message went by, and what is wrong with its block."""
    of_block = f"of its block of {count(hop.sent)}"
    missing = hop.sent - hop.passed
    if missing > 0:
        wrong = f"{counted(missing, 'message')} {of_block} did not"
    elif missing < 0:
        wrong = f"there are {counted(-missing, 'message')} too many {of_block}"
    else:
        wrong = f"some {of_block} did not, and as many came twice"
    match hop.message:
        case "passed":
            return f"it came here{f'; {wrong}' if not hop.is_same else f', as did all {of_block}'}"
        case "missing":
            return f"it did not come here; {count(hop.passed)} {of_block} did"
        case "doubled":
            return f"it came here more than once; {wrong}"
        case None:
            return f"not known if it came here; {wrong}, and the counts do not tell which"


def _place(record: Record) -> str:
    return f"{record.topic} {short(MessageQueue(record.topic, record.broker, record.queue_id))} @ {record.queue_offset}"
