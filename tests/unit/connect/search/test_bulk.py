"""`WriteToElasticsearch` against a cluster in memory that is busy as hypothesis says; answers, ids, names.

tests/integration/connect/test_search.py has real servers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from rmqio.batches import record_id
from rmqio.connect import Retry, RowRefused, Verdict, WriteToElasticsearch
from rmqio.connect.delivery import Delivery, Item
from rmqio.connect.rows import to_row
from rmqio.connect.search import (
    Document,
    SearchBusy,
    SearchOptions,
    SearchSink,
    SearchTooLarge,
    body_of,
    check_status,
    outcome_of,
    rounds_of,
)
from rmqio.connect.sink import PerhapsRefused
from rmqio.errors import LocalError, SerdeError
from rmqio.model import Record


class Cluster(SearchSink):
    """A sink over documents in memory. Each call takes from the script which documents are rejected as busy."""

    def __init__(self, script: Sequence[Sequence[int]], operation: str = "index") -> None:
        super().__init__("http://host:9200", "orders", SearchOptions("id", operation, None, None, None, None, 1.0))
        self.script = list(script)
        self.documents: dict[str, Any] = {}

    def _post(self, url: str, body: bytes) -> Any:
        lines = [json.loads(line) for line in body.splitlines()]
        busy = self.script.pop(0) if self.script else ()
        seen: set[str] = set()
        items = []
        for place, (action, source) in enumerate(zip(lines[::2], lines[1::2], strict=True)):
            ((operation, meta),) = action.items()
            assert meta["_id"] not in seen
            seen.add(meta["_id"])
            if place in busy:
                items.append({operation: {"status": 429, "error": {"type": "rejected", "reason": "queue is full"}}})
                continue
            document = source["doc"] if operation == "update" else source
            if document["v"] < 0:
                items.append(
                    {operation: {"status": 400, "error": {"type": "mapper_parsing_exception", "reason": "negative"}}}
                )
                continue
            if operation == "create" and meta["_id"] in self.documents:
                conflict = {"type": "version_conflict_engine_exception", "reason": "document already exists"}
                items.append({operation: {"status": 409, "error": conflict}})
                continue
            old = self.documents.get(meta["_id"], {}) if operation == "update" else {}
            self.documents[meta["_id"]] = {**old, **document}
            items.append({operation: {"status": 200}})
        return {"errors": True, "items": items}


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(-2, 9)), min_size=1, max_size=20),
    st.lists(st.sets(st.integers(0, 5)), max_size=8),
    st.sampled_from(["index", "update", "create"]),
)
def test_a_busy_cluster_ends_as_one_that_is_not(
    rows: list[tuple[int, int]], script: list[set[int]], operation: str
) -> None:
    sink = Cluster([sorted(each) for each in script], operation)
    wanted: dict[str, Any] = {}
    items = []
    for number, (found, value) in enumerate(rows):
        source = {"id": found, "v": value, f"f{number % 3}": number}
        items.append(Item(sink.convert(source), source, None, None))
        if value >= 0 and not (operation == "create" and str(found) in wanted):
            wanted[str(found)] = {**(wanted.get(str(found), {}) if operation == "update" else {}), **source}
    refused = Delivery(sink, Retry(), sleep=lambda _: None).write("orders", items)
    assert sink.documents == wanted
    given_up = {item.value["id"] for item, _ in refused}
    assert given_up <= {found for found, value in rows if value < 0}
    # A document that a later one replaced, or an earlier one that stays, can have been refused, or never sent.
    last = dict(rows if operation != "create" else reversed(rows))
    assert {found for found, value in last.items() if value < 0} <= given_up


def test_the_lines_of_requests() -> None:
    documents = [Document("1", {"a": "ä"}), Document(None, {})]
    assert body_of(documents, "index").decode() == '{"index": {"_id": "1"}}\n{"a":"ä"}\n{"index": {}}\n{}\n'
    assert body_of(documents[:1], "update").decode().splitlines()[1] == '{"doc":{"a":"ä"},"doc_as_upsert":true}'
    exact = Document("1", to_row(b'{"d": 12345678901234567890.0123456789}'))
    assert body_of([exact], "index").endswith(b'{"d":12345678901234567890.0123456789}\n')
    assert body_of(documents[:1], "delete") == b'{"delete": {"_id": "1"}}\n'


def item(status: int, kind: str = "x", operation: str = "index", reason: str = "r") -> dict[str, Any]:
    error = {"type": kind, "reason": reason, "caused_by": {"reason": "c"}}
    return {operation: {"status": status} if status < 300 else {"status": status, "error": error}}


@pytest.mark.parametrize(
    ("operation", "items", "refused", "again"),
    [
        ("index", [item(200), item(201)], [], []),
        ("index", [item(400, "mapper_parsing_exception"), item(429), item(503), item(201)], [0], [1, 2]),
        ("create", [item(409, "version_conflict_engine_exception", "create")], [], []),
        ("index", [item(409, "version_conflict_engine_exception")], [0], []),
        ("delete", [item(404, "", "delete")], [], []),
        # Another worker has changed the document between the read and the write of the cluster.
        ("update", [item(409, "version_conflict_engine_exception", "update")], [], [0]),
        ("update", [item(409, "other", "update")], [0], []),
    ],
)
def test_what_answers_say(operation: str, items: list[Any], refused: list[int], again: list[int]) -> None:
    found = outcome_of({"errors": True, "items": items}, operation, len(items))
    assert ([*found.refused], [*found.again]) == (refused, again) if found else not (refused or again)


@pytest.mark.parametrize(
    ("kind", "reason", "perhaps"),
    [
        ("strict_dynamic_mapping_exception", "r", False),
        ("illegal_argument_exception", "Document contains at least one immense term in field=name", False),
        ("illegal_argument_exception", "Limit of total fields [1000] has been exceeded", False),
        ("illegal_argument_exception", "pipeline with id [nightly] does not exist", True),
        ("illegal_argument_exception", "only write ops with an op_type of create are allowed in data streams", True),
        ("illegal_argument_exception", "no write index is defined for alias [logs]", True),
        ("routing_missing_exception", "routing is required for [orders]/[1]", True),
    ],
)
def test_what_can_be_the_error_of_all_documents(kind: str, reason: str, perhaps: bool) -> None:
    """A pipeline that does not exist would send all of them to the dead letters."""
    found = outcome_of({"errors": True, "items": [item(400, kind, reason=reason)]}, "index", 1)
    assert found is not None
    assert isinstance(found.refused[0], PerhapsRefused) is perhaps


def test_a_refusal_says_why() -> None:
    found = outcome_of({"errors": True, "items": [item(400, "mapper_parsing_exception")]}, "index", 1)
    assert found is not None
    assert str(found.refused[0]) == "mapper_parsing_exception: r: c"


@pytest.mark.parametrize("items", [[item(403, "security_exception")], [item(404, "index_not_found_exception")]])
def test_an_error_of_the_set_up_is_no_error_of_a_document(items: list[Any]) -> None:
    with pytest.raises(LocalError, match="the cluster refuses documents"):
        outcome_of({"errors": True, "items": items}, "index", 1)


@pytest.mark.parametrize("answer", [None, {}, {"items": []}, {"items": [item(200)] * 2}, []])
def test_an_answer_to_something_else_is_asked_again(answer: Any) -> None:
    with pytest.raises(SearchBusy, match="not one of a bulk request of 1 documents"):
        outcome_of(answer, "index", 1)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (413, SearchTooLarge),
        (429, SearchBusy),
        (503, SearchBusy),
        (401, LocalError),
        (400, LocalError),
        (301, LocalError),
    ],
)
def test_the_status_of_a_request(status: int, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="because"):
        check_status(status, "because\n  of this")


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (SearchBusy("x"), Verdict.RETRY),
        (SearchTooLarge("x"), Verdict.ROWS),
        (SerdeError("x"), Verdict.ROWS),
        (requests.exceptions.ConnectionError(), Verdict.RETRY),
        (requests.exceptions.ReadTimeout(), Verdict.RETRY),
        (requests.exceptions.SSLError(), Verdict.FAIL),
        (LocalError("x"), Verdict.FAIL),
    ],
)
def test_what_errors_mean(error: Exception, verdict: Verdict) -> None:
    assert Cluster([]).judge(error) is verdict


def options(**given: Any) -> SearchOptions:
    return SearchOptions(None, "index", None, None, None, None, 1.0)._replace(**given)


def test_ids_are_those_of_the_place_of_a_field_or_of_a_function() -> None:
    record = Record("t", "b", 1, 3, b'{"id": 7}', 1, 2, b"", 0, 0, 0, 0, 0, b"", b"", 0, 9)
    for found, wanted in ((None, record_id(record)), ("id", "7"), (lambda each: each.topic, "t")):
        index, document = SearchSink("http://h", "i", options(id=found)).convert(record)
        assert (index, document) == ("i", Document(wanted, {"id": 7}))
    assert SearchSink("http://h", "i", options()).convert({"a": 1})[1].id is None


@pytest.mark.parametrize(
    ("element", "message"),
    [
        ({}, "the document has no id"),
        ({"id": None}, "the document has no id"),
        ({"id": 1.5}, "the id 1.5 is neither text nor a number"),
        ({"id": True}, "neither text"),
        ({"id": "x" * 513}, "more than 512 bytes"),
    ],
)
def test_documents_without_a_proper_id_are_refused(element: Any, message: str) -> None:
    with pytest.raises(RowRefused, match=message):
        SearchSink("http://h", "i", options(id="id")).convert(element)


@pytest.mark.parametrize("index", ["Orders", "a b", "_a", "", "a/b", "-x", None])
def test_names_that_no_index_can_have(index: Any) -> None:
    with pytest.raises(RowRefused, match="is not the name of an index"):
        SearchSink("http://h", lambda _: index, options()).convert({"a": 1})


def test_rounds() -> None:
    assert rounds_of(["a", "b", "a", None, "a"], "index") == [[[0, 2, 4], [1], [3]]]
    assert rounds_of(["a", "b", "a", None, "a"], "update") == [[[3]], [[0], [1]], [[2]], [[4]]]
    assert rounds_of(["a", "a", None], "create") == [[[0, 1], [2]]]


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"url": "host:9200"}, "url must be like https://host:9200"),
        ({"url": "https://me:secret@host"}, "url holds credentials"),
        ({"operation": "indx"}, "did you mean index"),
        ({"operation": "update"}, "needs to know which document: give id="),
        ({"index": ""}, "it must be a name"),
        ({"username": "a", "api_key_env": "B"}, "both given"),
    ],
)
def test_arguments_are_checked_when_it_is_built(given_: dict[str, Any], message: str) -> None:
    with pytest.raises(LocalError, match=message):
        WriteToElasticsearch(**{"url": "http://host:9200", "index": "orders", **given_})


def test_certificates_that_are_not_there_are_an_error_at_once() -> None:
    sink = SearchSink("https://host", "orders", SearchOptions(None, "index", None, None, None, "none.pem", 1.0))
    with pytest.raises(LocalError, match="index orders of https://host: ca_file: there is no file none") as caught:
        sink.open()
    assert sink.judge(caught.value) is Verdict.FAIL
