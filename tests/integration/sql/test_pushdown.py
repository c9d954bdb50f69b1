"""Filters of SQL on a real broker: for random conditions, every row for which they are true still comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio import MessageQueue, Record
from rmqio.model import MessageFilter
from rmqio.sql.compile.description import Fragment, FromTable, Step, ToRows
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.planning.pushdown import Pushed, pushed_of, uses_of
from rmqio.sql.scripts.script import Script
from tests.helpers.client.raw_send import read_to, records_of
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.sql_conditions import CONDITIONS, PROPERTIES, TABLE

pytestmark = pytest.mark.broker

TAGS = ("a", "b", "Aa", "BB", None)


@pytest.fixture(scope="module")
def queue(lab: Lab) -> MessageQueue:
    (found,) = lab.topic(0)
    kinds = [(tag, properties) for tag in TAGS for properties in PROPERTIES]

    def fields(number: int) -> dict[str, Any]:
        tag, properties = kinds[number]
        return {"tags": tag, "properties": properties}

    lab.send(found, len(kinds), make=fields)
    return found


def read(lab: Lab, queue: MessageQueue, wanted: MessageFilter) -> dict[int, Record]:
    parts = read_to(lab.client, queue, 0, lab.client.max_offset(queue), message_filter=wanted)
    return {record.queue_offset: record for record in records_of(parts)}


def filters_of(pushed: Pushed) -> Iterator[MessageFilter]:
    if pushed.selector is not None:
        yield MessageFilter(pushed.selector.text, sql=True)
    if pushed.expression is not None:
        yield MessageFilter(pushed.expression)


def test_no_row_is_lost(lab: Lab, queue: MessageQueue) -> None:
    """And some that are left out are left out by the broker: its grammar takes what is made."""
    everything = read(lab, queue, MessageFilter())
    left_out = 0

    @settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(conditions=st.lists(CONDITIONS, min_size=1, max_size=2), how=st.sampled_from(["sql92", "tags"]))
    def check(conditions: list[str], how: str) -> None:
        nonlocal left_out
        script = Script()
        inserts = "".join(f"INSERT INTO sink SELECT 1 FROM t WHERE {each};" for each in conditions)
        option = f"'filter.push-down' = '{how}'"
        script.run(
            f"{TABLE.replace('{options}', option)} CREATE TABLE sink (a INT) WITH ('connector' = 'print'); {inserts}"
        )
        uses = uses_of(script.sinks)
        wanted: set[int] = set()
        for use in uses:
            fragment = Fragment(FromTable(use.scan.table, use.scan.columns), (Step(use.condition, ()),), ToRows())
            wanted |= set(compiled(fragment)(list(everything.values())).positions)
        for each in filters_of(pushed_of(script.catalog.tables["t"], uses)):
            sent = read(lab, queue, each)
            assert wanted <= set(sent), each
            left_out += len(everything) - len(sent)

    check()
    assert left_out > 100
