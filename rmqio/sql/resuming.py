"""Whether a changed text can go on from where the one before it is."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rmqio.sql.catalog.settings import options_of
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import SqlError
from rmqio.sql.explain.signature import Signature, compared, signature_of
from rmqio.sql.planning.plan import Calc, Constants, LookupJoin, Relation, Scan, Sink, Union, Windowed, tables_of
from rmqio.sql.planning.pushdown import endless_reads
from rmqio.sql.planning.relations import Expand
from rmqio.sql.scripts.catalog_file import load_catalogs
from rmqio.sql.scripts.script import Script

# Whether a job without a checkpoint can go on from the offsets of its consumer groups.


def obstacles(sinks: Sequence[Sink]) -> list[str]:
    """Returns why a job that starts again would skip rows or write them twice; none: its groups say where it is."""
    found: dict[str, None] = {}
    for sink in sinks:
        for each in _stateful(sink.input):
            found[f"INSERT INTO {sink.table.name} keeps rows ({type(each).__name__.lower()}), which end with it"] = None
        if any(isinstance(each, Constants) for each in _all(sink.input)):
            found[f"INSERT INTO {sink.table.name} has rows of its own, which it would write again"] = None
    for table in _tables(sinks):
        options = table.options
        if options.connector != "rocketmq":
            found[f"the table {table.name} would be read from its beginning"] = None
        elif options.group is None:
            found[f"the table {table.name} has no 'consumerGroup', whose offsets say how far it was read"] = None
        elif options.start is not None and options.start.kind == "specific_offsets":
            found[f"the table {table.name} starts at given offsets"] = None
    return list(found)


def new_groups(before: Sequence[Sink], now: Sequence[Sink]) -> list[str]:
    """Returns the topics that are read with another group, whose offsets are elsewhere."""
    old = {table.options.topic: table.options.group for table in _tables(before)}
    return [
        f"the group of {table.name} was {old[table.options.topic]}, and is {table.options.group}"
        for table in _tables(now)
        if table.options.topic in old and table.options.group and old[table.options.topic] != table.options.group
    ]


def _tables(sinks: Sequence[Sink]) -> list[Table]:
    return list({id(each): each for sink in sinks for each in tables_of(sink)}.values())


def _all(relation: Relation) -> Iterator[Relation]:
    yield relation
    for each in relation.inputs():
        yield from _all(each)


def _stateful(relation: Relation) -> Iterator[Relation]:
    """The relations that keep rows. A dimension table is loaded again."""
    stateless = (Calc, Constants, Expand, LookupJoin, Scan, Union, Windowed)
    return (each for each in _all(relation) if not isinstance(each, stateless))


_OTHERWISE: Final = (
    "Give the new query a file of its own, or start over: rmqio sql stop, remove the checkpoint, rmqio sql start"
)


def is_same(script: Script, arguments: argparse.Namespace) -> bool:
    """Returns whether the text of `--replaces` has the same plan, so that nothing must be started again.

    Raises `SqlError` if it has not, and the script cannot go on from where that text is.
    """
    if arguments.replaces is None:
        return False
    before = Script()
    try:
        load_catalogs(before, arguments.catalog)
        before.run(Path(arguments.replaces).read_text("utf-8-sig"), arguments.file)
    except SqlError:  # not valid any more, by a catalog for instance: the runner says whether the state fits
        return False
    runner = _runner(arguments)
    if before.settings == script.settings and _same_plans(before.sinks, script.sinks, in_order=runner == "flink"):
        return True
    if keeps_checkpoint(script, arguments):
        if arguments.has_state:
            _require_fitting(signature_of(before.sinks), signature_of(script.sinks), runner)
    elif arguments.is_running:
        _require_resumable(before, script, arguments)
    return False


def keeps_checkpoint(script: Script, arguments: argparse.Namespace) -> bool:
    """Returns whether the runner goes on from a checkpoint: Spark and Flink, as a stream."""
    endless = [] if arguments.stop is not None else endless_reads(script.sinks)
    flags = [*arguments.rest, *options_of(script.settings, _runner(arguments), arguments.rest, endless)]
    return _runner(arguments) in ("spark", "flink") and any(each.partition("=")[0] == "--streaming" for each in flags)


def _runner(arguments: argparse.Namespace) -> str:
    return str(arguments.runner or "Direct").lower().removesuffix("runner")


def _same_plans(before: Sequence[Sink], now: Sequence[Sink], *, in_order: bool) -> bool:
    if in_order or len(before) != len(now):
        return list(before) == list(now)
    left = list(now)
    for each in before:
        if each not in left:
            return False
        left.remove(each)
    return True


def _require_fitting(before: Signature, now: Signature, runner: str) -> None:
    found = compared(before, now)
    refused = found.refused
    if not refused and runner == "flink" and found.order != sorted(found.order) and _keeps_state(before):
        refused = ["the INSERT INTO statements are in another order, by which Flink finds their state"]
    if refused:
        raise SqlError(f"it cannot continue from its checkpoint: {'; '.join(refused)}. {_OTHERWISE}")


def _keeps_state(signature: Signature) -> bool:
    return any(not step["step"].startswith("read of ") for each in signature for step in each["steps"])


def _require_resumable(before: Script, script: Script, arguments: argparse.Namespace) -> None:
    found = [*obstacles(script.sinks), *new_groups(before.sinks, script.sinks)]
    if not found and _runner(arguments) != "direct":
        found = ["without --streaming, its offsets are committed when it is done, and not before"]
    if found:
        raise SqlError(
            f"it cannot go on from where the old text is, because its runner keeps no checkpoint: {'; '.join(found)}. "
            "Wait until the job is done, run it on Spark or Flink with --streaming, or start it anew: rmqio sql stop, "
            "rmqio sql start"
        )
