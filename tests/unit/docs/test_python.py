"""Each block of Python in README and docs runs on a broker on loopback ports.

Those for plain PySpark run in tests/runners/pyspark/test_docs.py, those for transactions in
tests/integration/client/test_transactions.py, those for Kafka and search engines in tests/integration/connect.

A block sees the names that earlier blocks of its page have defined, and those of `_given`. Reads without an end get an
end; test_migrate.py runs programs of docs/migrate without one, and those of docs/connect
must have one of their own.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import apache_beam as beam
import pytest

import rmqio
from rmqio import Message, ReadFromRocketMQ, StartFrom, StopAt
from rmqio.runners import options
from tests.helpers.doc_blocks import BLOCKS, NAME_SERVER, ROOT, SCHEMA, Block, blocks_that_need
from tests.helpers.fakes.broker import FakeBroker

_SHOWS: Final = re.compile(r"print\(record|Map\(show\)|(?<!failed )\| beam\.Map\(print\)")
HERE: Final = sorted({block.page for block in BLOCKS if block.runs_on == "here"})


def of_page(page: str, runs_on: str) -> list[Block]:
    return [block for block in BLOCKS if block.page == page and block.runs_on == runs_on]


# ---- what runs here --------------------------------------------------------------------------------------------------

_TOPICS: Final = ("payments", "greetings", "provinces", "orders-dead", "orders-audit", "orders-by-id", "copies")


def _given(name: str, pipeline: beam.Pipeline) -> Any:
    """Returns the value of a name that a page uses and does not define."""
    if name == "pipeline":
        return pipeline
    if name == "records":
        return pipeline | "Given" >> rmqio.ReadFromRocketMQ("orders")
    if name in ("messages", "provinces"):
        return pipeline | "Given" >> beam.Create([Message(b"given", keys=["given-1"])])
    raise NameError(f"a block uses {name!r}, which no block before it on its page defines")


def _unbound(code: str, known: dict[str, Any]) -> list[str]:
    """Names that a block uses and that nothing defines; `pipeline` and `records` are new in each block."""
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)]
    stored = {node.id for node in nodes if not isinstance(node.ctx, ast.Load)}
    loaded = {node.id for node in nodes if isinstance(node.ctx, ast.Load)}
    bound = {each.name for each in ast.walk(ast.parse(code)) if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    bound |= {each.arg for each in ast.walk(ast.parse(code)) if isinstance(each, ast.arg)}
    bound |= {str(each.name) for each in ast.walk(ast.parse(code)) if isinstance(each, ast.ExceptHandler)}
    bound |= {
        (alias.asname or alias.name).partition(".")[0]
        for each in ast.walk(ast.parse(code))
        if isinstance(each, ast.Import | ast.ImportFrom)
        for alias in each.names
    }
    fresh = {"pipeline", "records"} - stored
    return sorted(name for name in loaded - stored - bound if name in fresh or not _is_known(name, known))


def _is_known(name: str, known: dict[str, Any]) -> bool:
    return name in known or hasattr(builtins, name)


def _with_an_end(*args: Any, **given: Any) -> ReadFromRocketMQ:
    if given.get("start") == StartFrom.group_offsets(reset="latest"):  # the messages are there before the program
        given["start"] = StartFrom.group_offsets(reset="earliest")
    return ReadFromRocketMQ(*args, **{"start": StartFrom.earliest(), "stop": StopAt.latest(), **given})


def _as_printed(*args: Any, **given: Any) -> ReadFromRocketMQ:
    assert "stop" in given, "a program of this page would never end, so that the rest of it would not run"
    return ReadFromRocketMQ(*args, **given)


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBroker]:
    """A broker with the topics of the pages; the current folder has the files that blocks name."""
    (tmp_path / "order.avsc").write_text(SCHEMA)
    (tmp_path / "order.json").write_text('{"type": "object", "required": ["id"]}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pipeline.py"])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # files of tables
    monkeypatch.setattr(rmqio, "ReadFromRocketMQ", _with_an_end)
    with FakeBroker() as broker:
        monkeypatch.setenv("NAMESRV_ADDR", broker.name_server)
        for topic in ("orders", *_TOPICS):
            broker.cluster.create_topic(topic)
        yield broker


def _fill(broker: FakeBroker, code: str) -> None:
    """Puts what a block reads into the topic `orders`, anew."""
    broker.cluster.delete_topic("orders")
    broker.cluster.create_topic("orders")
    body = b'{"id": 17, "amount": 1.5}'
    if "AvroDeserializer" in code:
        from decimal import Decimal

        from rmqio.serde.avro import AvroSerializer

        body = AvroSerializer(SCHEMA)({"id": 17, "amount": Decimal("1.50")}).body
    for queue in range(2):
        broker.cluster.append("orders", body, queue_id=queue, tags="paid", keys=["o-17"])


@pytest.mark.parametrize("page", HERE)
def test_the_blocks_of_a_page_run(
    page: str, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if page.startswith("docs/connect/"):
        monkeypatch.setattr(rmqio, "ReadFromRocketMQ", _as_printed)
        pytest.importorskip("sqlalchemy", reason="databases need the extra 'sql-databases'")
    module = ModuleType("page_of_the_documentation")  # a module, so that classes of a block are pickled by reference
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in of_page(page, "here"):
        _fill(broker, block.code)
        code = NAME_SERVER.sub(broker.name_server, block.code).replace('__name__ == "__main__"', "True")
        code = code.replace("--runner=SparkRunner", "--runner=DirectRunner")
        pipeline = beam.Pipeline(options=options([]))
        for name in _unbound(code, vars(module)):
            setattr(module, name, _given(name, pipeline))
        stored = _stored(broker)
        exec(compile("\n" * (block.line - 1) + code, page, "exec"), vars(module))
        if pipeline.transforms_stack[0].parts and "librocketmq" not in code:  # which must stay out of this process
            pipeline.run().wait_until_finish()
        shown = capsys.readouterr().out
        assert bool(_SHOWS.search(code)) <= bool(shown), block
        if "| WriteToRocketMQ(" in code and "librocketmq" not in code:
            assert _stored(broker) > stored, block


def _stored(broker: FakeBroker) -> int:
    return sum(len(broker.cluster.records(topic)) for topic in _TOPICS)


# ---- what needs more -------------------------------------------------------------------------------------------------


@pytest.mark.broker
@pytest.mark.parametrize("block", blocks_that_need("broker"), ids=lambda b: b.page)
def test_a_block_that_starts_a_broker_runs(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block.code, block.page, "exec"), {"__name__": "page"})
    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.runs_on != "spark"], ids=lambda b: f"{b.page}:{b.line}")
def test_imports_and_arguments_of_a_block_are_those_of_the_library(block: Block) -> None:
    """Also shows it for what is inside of functions that no test calls."""
    tree = ast.parse(block.code)
    known: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            exec(compile(ast.Module([node], []), block.page, "exec"), known)
    for call in [node for node in ast.walk(tree) if isinstance(node, ast.Call)]:
        function = _imported(call.func, known)
        if function is None or any(keyword.arg is None for keyword in call.keywords):
            continue
        if any(isinstance(each, ast.Starred) for each in call.args):
            continue
        try:
            signature = inspect.signature(function)
        except ValueError:  # of Python's own functions in C, and of exceptions without an __init__
            continue
        signature.bind(*call.args, **{str(keyword.arg): keyword.value for keyword in call.keywords})


def _imported(node: ast.expr, known: dict[str, Any]) -> Callable[..., Any] | None:
    """Returns the function that a call calls, if it is an imported name or an attribute of one."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        of = _imported(node.value, known)
        return None if of is None else getattr(of, node.attr)
    return None


def test_there_are_blocks_of_each_kind() -> None:
    assert {block.runs_on for block in BLOCKS} == {"here", "broker", "transactions", "spark", "kafka", "search"}
    assert len(HERE) > 8


def test_a_wrong_argument_is_found() -> None:
    block = Block("page", 1, "from rmqio import StartFrom\nStartFrom.timestamp(1, when=2)\n")
    with pytest.raises(TypeError, match="unexpected keyword argument 'when'"):
        test_imports_and_arguments_of_a_block_are_those_of_the_library(block)


def test_a_name_that_nothing_defines_is_found() -> None:
    assert _unbound("x = ReadFrom('a')\npipeline | x", {}) == ["ReadFrom", "pipeline"]
    with pytest.raises(NameError, match="'ReadFrom'"):
        _given("ReadFrom", beam.Pipeline(options=options([])))


# ---- what all have ---------------------------------------------------------------------------------------------------

_WITHOUT_OPTIONS: Final = re.compile(r"\bPipeline\((?!.*\boptions=)")
_PACKAGES: Final = ("examples", "pipelines", "pyspark_rocketmq", "rmqio")


def _docstrings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def test_no_snippet_ignores_the_command_line() -> None:
    """`beam.Pipeline()` runs on the DirectRunner, whatever `--runner` says."""
    snippets = [(f"{block.page}:{block.line}", block.code) for block in BLOCKS]
    for path in (path for package in _PACKAGES for path in (ROOT / package).rglob("*.py")):
        if "Pipeline(" in (source := path.read_text()):
            snippets += [(str(path), source)] if path.parent.name == "examples" else []
            snippets += [(str(path), text) for text in _docstrings(source)]
    assert [place for place, code in snippets if _WITHOUT_OPTIONS.search(code)] == []
    assert _WITHOUT_OPTIONS.search("with beam.Pipeline() as pipeline:")
