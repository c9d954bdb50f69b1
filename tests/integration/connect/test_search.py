"""`WriteToElasticsearch` on real nodes of both products: ids, refused documents, and a node that is killed."""

from __future__ import annotations

import re
import sys
import threading
import urllib.error
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from rmqio.connect import Batching, Retry, WriteToElasticsearch
from tests.helpers.doc_blocks import Block, blocks_that_need
from tests.helpers.pipelines.holding import Hold
from tests.helpers.servers.search_node import ELASTICSEARCH, OPENSEARCH, SearchNode
from tests.helpers.waiting import until

pytestmark = [pytest.mark.systems, pytest.mark.slow]

MAPPING = {"mappings": {"properties": {"n": {"type": "integer"}, "day": {"type": "date"}}}}


@pytest.fixture(scope="module", params=[OPENSEARCH, ELASTICSEARCH], ids=lambda product: product.title)
def node(request: pytest.FixtureRequest) -> Iterator[SearchNode]:
    with SearchNode(request.param) as found:
        yield found


def new_index(node: SearchNode, name: str) -> str:
    node.ask(f"/{name}", MAPPING, "PUT")
    return name


def stored(node: SearchNode, index: str) -> dict[str, Any]:
    node.ask(f"/{index}/_refresh", method="POST")
    hits = node.ask(f"/{index}/_search?size=10000")["hits"]["hits"]
    return {hit["_id"]: hit["_source"] for hit in hits}


def write(node: SearchNode, index: Any, rows: list[Any], **options: Any) -> None:
    with beam.Pipeline() as pipeline:
        _ = pipeline | beam.Create([rows]) | WriteToElasticsearch(node.url, index, batches=True, **options)


def test_documents_replace_stay_change_and_go(node: SearchNode) -> None:
    index = new_index(node, "operations")
    first = [{"id": number, "n": number, "a": "old"} for number in range(3)]
    for _ in range(2):
        write(node, index, [*first, {"id": 2, "n": 5}], id="id")
    assert stored(node, index) == {"0": first[0], "1": first[1], "2": {"id": 2, "n": 5}}
    created = [
        {"id": 1, "n": 9},
        {"id": 3, "n": 3},
        {"id": 5, "n": "x"},
        {"id": 3, "n": 8},
        {"id": 5, "n": 5},
        {"id": 5},
    ]
    write(node, index, created, id="id", operation="create", on_failure="output")
    assert [stored(node, index)[each] for each in "135"] == [first[1], {"id": 3, "n": 3}, {"id": 5, "n": 5}]
    write(node, index, [{"id": 1, "n": 7}, {"id": 1, "b": "x"}, {"id": 4, "n": 4}], id="id", operation="update")
    assert stored(node, index)["1"] == {"id": 1, "n": 7, "a": "old", "b": "x"}
    write(node, index, [{"id": 0}, {"id": 77}], id="id", operation="delete")
    assert sorted(stored(node, index)) == ["1", "2", "3", "4", "5"]


def test_a_refused_document_goes_out_alone(node: SearchNode) -> None:
    index = new_index(node, "refused")
    rows = [{"id": 1, "n": 1}, {"id": 2, "n": "two"}, {"id": 3, "day": "yesterday"}, {"id": 4, "n": 4}, {"n": 5}]
    pipeline = beam.Pipeline()
    result = pipeline | beam.Create(rows) | WriteToElasticsearch(node.url, index, id="id", on_failure="output")

    def check(failures: list[Any]) -> None:
        reasons = sorted(each.reason for each in failures)
        assert len(reasons) == 3, reasons
        assert "the document has no id" in reasons[0]
        assert "failed to parse field [day]" in reasons[1]
        assert "failed to parse field [n]" in reasons[2]

    _ = result.failed | beam.combiners.ToList() | beam.Map(check)
    pipeline.run().wait_until_finish()
    assert sorted(stored(node, index)) == ["1", "4"]


def test_each_document_says_its_index(node: SearchNode) -> None:
    write(node, lambda row: f"of-{row['n']}", [{"n": 1}, {"n": 2}, {"n": 2}])
    assert [len(stored(node, f"of-{number}")) for number in (1, 2)] == [1, 2]


def test_an_index_that_may_not_be_created_fails_the_pipeline(node: SearchNode) -> None:
    node.ask("/_cluster/settings", {"persistent": {"action.auto_create_index": "of-*"}}, "PUT")
    with pytest.raises(Exception, match="index_not_found_exception"):
        with beam.Pipeline() as pipeline:
            _ = pipeline | beam.Create([{"n": 1}]) | WriteToElasticsearch(node.url, "forbidden")
    with pytest.raises(urllib.error.HTTPError):
        node.ask("/forbidden")


@pytest.mark.parametrize("block", blocks_that_need("search"), ids=lambda block: f"{block.page}:{block.line}")
def test_the_blocks_of_the_pages_run(block: Block, node: SearchNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["pipeline.py"])
    node.ask("/_cluster/settings", {"persistent": {"action.auto_create_index": None}}, "PUT")
    exec(compile(block.code.replace("http://localhost:9200", node.url), block.page, "exec"), {"__name__": "page"})
    assert stored(node, "orders") == {"17": {"id": 17, "amount": 1.5}}


def test_a_node_killed_midway_loses_and_doubles_nothing(
    node: SearchNode, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The node is killed while documents are written, and starts again. The write goes on, and the log says so.

    The last documents are held until it is killed.
    """
    index = new_index(node, "killed")
    hold = Hold(tmp_path / "hold", 1400).begin()

    def written() -> int:
        return int(node.ask(f"/{index}/_stats/indexing")["_all"]["total"]["indexing"]["index_total"])

    def wait(row: dict[str, int]) -> dict[str, int]:
        hold.wait_at(0, row["id"])
        return row

    def kill() -> None:
        until(lambda: written() >= 300, "the first documents", progress=written)
        node.kill()
        hold.release()
        node.start()

    killer = threading.Thread(target=kill)
    killer.start()
    rows = [{"id": number, "n": number} for number in range(1500)]
    pipeline = beam.Pipeline()
    retry = Retry(max_wait_s=0.5, give_up_after_s=3_600)
    write = WriteToElasticsearch(node.url, index, id="id", batching=Batching(max_rows=20), retry=retry)
    _ = pipeline | beam.Create(rows, reshuffle=False) | beam.Map(wait) | write
    result = pipeline.run()
    result.wait_until_finish()
    killer.join()
    counters = {each.key.metric.name: each.committed for each in result.metrics().query()["counters"]}
    assert counters["row_write_retries"] > 0
    said = [each.getMessage() for each in caplog.records if each.name == "rmqio.connect"]
    assert " is away or busy; it is tried again for 3600 s at most: " in said[0]
    assert " is back after " in said[-1]
    away_s = [int(each) for each in re.findall(r" is away or busy for (\d+) s", "\n".join(said))]
    assert all(later - before >= 29 for before, later in pairwise([0, *away_s])), "one at once, one each 30 s"
    assert len(said) == len(away_s) + 2
    assert stored(node, index) == {str(row["id"]): row for row in rows}
