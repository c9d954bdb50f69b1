"""The blocks of plain PySpark in README and docs run on Spark and a real broker."""

from __future__ import annotations

import ast
import re
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="the format rocketmq needs the extra 'spark'")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rmqio.model import Message, MessageQueue, Record
from rmqio.serde.avro import AvroSerializer
from tests.helpers.client.raw_send import read_to, records_of, send_all
from tests.helpers.doc_blocks import NAME_SERVER, Block, blocks_that_need
from tests.helpers.ledgers.ledger import Lab

pytestmark = [pytest.mark.broker, pytest.mark.slow]

BLOCKS: Final = blocks_that_need("spark")
ORDER: Final = """{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "string"}, {"name": "customer", "type": "string"},
    {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}]}"""
_TOPIC: Final = re.compile(r'((?:"subscribe", |"topic", |topic=)")(orders|counts)"')


class Ran(NamedTuple):
    """The results of a block."""

    shown: str
    """The text that it printed."""
    names: dict[str, Any]
    last: Any
    """The value of its last line, if that is an expression."""
    folder: Path
    """Stands for `/data`."""
    written: Callable[[str], list[Record]]
    """The records of one of its topics."""


class Given:
    """The topics that one block reads and writes, and the DataFrames that a page uses and does not define."""

    def __init__(self, lab: Lab, spark: SparkSession, code: str) -> None:
        self._lab, self._spark, self._code = lab, spark, code
        suffix = uuid.uuid4().hex[:8]
        self.queues = {name: lab.topic(0, name=f"{name}-{suffix}")[0] for name in ("orders", "counts", "given")}
        for number in range(3):
            order = {"id": f"o-{number}", "customer": "c-7", "amount": Decimal("2.50")}
            body = AvroSerializer(ORDER)(order).body if "avro" in code else f"order {number}".encode()
            for name in ("orders", "given"):
                send_all(lab.broker.broker, self.queues[name], [Message(body, tags="paid")])

    def names(self) -> dict[str, Any]:
        streamed = self._stream()
        running = {"query": self._running(streamed)} if "query.lastProgress" in self._code else {}
        return running | {
            "spark": self._spark,
            "messages": streamed,
            "frame": streamed.selectExpr("body", "tags", "'c-7' AS customer"),
            "orders": self._spark.createDataFrame(
                [("o-1", "c-7", 2.5), ("o-2", "c-8", 5.0)], "id string, customer string, amount double"
            ),
            "counts": streamed.groupBy("tags").count().selectExpr("tags", "cast(count AS string) AS body"),
        }

    @staticmethod
    def _running(streamed: DataFrame) -> StreamingQuery:
        query = streamed.writeStream.format("noop").start()
        query.processAllAvailable()
        return query

    def _stream(self) -> DataFrame:
        reader = self._spark.readStream.format("rocketmq").option("nameServer", self._lab.broker.name_server)
        return reader.options(subscribe=self.queues["given"].topic, startingOffsets="earliest").load()

    def written(self, name: str) -> list[Record]:
        queue: MessageQueue = self.queues[name]
        end = self._lab.client.max_offset(queue)
        return list(records_of(read_to(self._lab.client, queue, 0, end))) if end else []


@pytest.fixture
def run(lab: Lab, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[Block], Ran]:
    (tmp_path / "order.avsc").write_text(ORDER)

    def run(block: Block) -> Ran:
        given = Given(lab, spark, block.code)
        code = NAME_SERVER.sub(lab.broker.name_server, block.code).replace("/data/", f"{tmp_path}/")
        code = code.replace("order.avsc", f"{tmp_path}/order.avsc")  # Spark's processes began in another folder
        code = _TOPIC.sub(lambda found: f'{found[1]}{given.queues[found[2]].topic}"', code)
        names = given.names()
        tree = ast.parse("\n" * (block.line - 1) + code)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, block.page, "exec"), names)
        value = eval(compile(ast.Expression(last.value), block.page, "eval"), names) if last is not None else None  # type: ignore[attr-defined]
        query = names.get("query", value)
        if isinstance(query, StreamingQuery):
            query.processAllAvailable()
            query.stop()
        return Ran(capsys.readouterr().out, names, value, tmp_path, given.written)

    return run


def block_with(text: str) -> Block:
    (block,) = [block for block in BLOCKS if text in block.code and block.page == "docs/pyspark.md"]
    return block


@pytest.mark.parametrize("page", ["README.md", "docs/pyspark.md"])
def test_a_topic_is_a_table(page: str, run: Callable[[Block], Ran]) -> None:
    ran = run(next(block for block in BLOCKS if block.page == page))
    assert re.search(r"\|paid\|\s+3\|", ran.shown)


def test_a_topic_is_a_stream(run: Callable[[Block], Ran], spark: SparkSession) -> None:
    ran = run(block_with('.selectExpr("cast(body AS string) AS order")'))
    assert sorted(row.order for row in spark.read.parquet(str(ran.folder / "orders")).collect()) == [
        "order 0",
        "order 1",
        "order 2",
    ]


def test_rows_become_messages(run: Callable[[Block], Ran]) -> None:
    written = run(block_with("to_json(struct(*))")).written("orders")[3:]
    assert {(record.keys, record.sharding_key) for record in written} == {(("o-1",), "c-7"), (("o-2",), "c-8")}
    assert all(b'"customer"' in record.body for record in written)


def test_avro_has_typed_columns(run: Callable[[Block], Ran]) -> None:
    assert re.search(r"\|\s*c-7\|\s+7\.50\|", run(block_with('"valueFormat", "avro"')).shown)


def test_filters_can_be_pushed(run: Callable[[Block], Ran], spark: SparkSession) -> None:
    name = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(name)
    try:
        run(block_with(name))
        assert spark.conf.get(name) == "true"
    finally:
        spark.conf.set(name, str(before))


def test_a_stream_is_written(run: Callable[[Block], Ran]) -> None:
    written = run(block_with('.option("checkpointLocation", "/data/copy.checkpoint")')).written("orders")[3:]
    assert [record.body for record in written] == [b"order 0", b"order 1", b"order 2"]
    assert {(record.tags, record.sharding_key) for record in written} == {("paid", "c-7")}


def test_changed_rows_are_sent_with_for_each_batch(run: Callable[[Block], Ran]) -> None:
    written = run(block_with("foreachBatch")).written("counts")
    assert [(record.tags, record.body) for record in written] == [("paid", b"3")]


def test_lag_is_computed_from_a_querys_progress(run: Callable[[Block], Ran]) -> None:
    assert re.search(r"^0 0 0(\.0)? 0 ", run(block_with("LagListener")).shown, re.MULTILINE)


def test_a_program_of_rocketmq_spark_copies_a_topic(run: Callable[[Block], Ran]) -> None:
    (block,) = [block for block in BLOCKS if block.page == "docs/migrate/rocketmq-spark.md"]
    written = run(block).written("counts")
    assert [(record.body, record.tags) for record in written] == [(b"order %d" % n, "paid") for n in range(3)]


def test_every_block_is_run() -> None:
    assert len(BLOCKS) == 10
