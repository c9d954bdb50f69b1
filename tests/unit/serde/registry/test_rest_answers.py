"""The reaction of `RestRegistry` to a server's answers, and to none: it tries again, refuses, reports."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable

import pytest

from rmqio.errors import LocalError
from rmqio.serde.registry import RegistryUnavailable, RestRegistry, SchemaRegistryError, UnknownSchema
from tests.helpers.serde.registry_server import FOUND, SCHEMA, SECRET, VERSION, Answer, Connect, Server, Time, answer


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again(server: Server, connect: Connect, time: Time, status: int) -> None:
    server.script(answer(status, {"message": "busy"}), answer(status, "<html>"), FOUND)
    assert connect().by_id(7) == SCHEMA
    assert time.pauses == [0.05, 0.1]
    assert len(server.requests) == 3


def test_it_is_not_tried_for_ever(server: Server, connect: Connect, time: Time) -> None:
    server.script(answer(503, {"error_code": 50002, "message": "not\nnow"}))
    with pytest.raises(
        RegistryUnavailable, match=r"GET /schemas/ids/7 \(4 tries\): HTTP status 503: not now\."
    ) as caught:
        connect().by_id(7)
    assert caught.value.retriable
    assert server.url in str(caught.value)
    assert time.pauses == [0.05, 0.1, 0.2]


@pytest.mark.parametrize(
    ("header", "pause"),
    [("3", 3.0), ("3600", 10.0), ("0", 0.05), ("Mon, 23 Nov 2026 00:00:00 GMT", 0.05), ("-1", 0.05)],
)
def test_the_registry_says_how_long_to_wait(
    server: Server, connect: Connect, time: Time, header: str, pause: float
) -> None:
    server.script(answer(429, {}, Retry_After=header), FOUND)
    connect().by_id(7)
    assert time.pauses == [pause]


def test_a_call_that_takes_long_is_in_the_log_once(
    server: Server, connect: Connect, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    server.script(answer(503, {"message": "busy"}), FOUND)
    connect().by_id(7)
    assert not caplog.records, "a short failure is not"

    def slow(_: object) -> Answer:
        time.now += 5
        return answer(503, {"message": "busy"})

    server.handle = slow
    with pytest.raises(RegistryUnavailable):
        connect().by_id(8)
    assert caplog.messages == [
        f"schema registry {server.url} does not answer GET /schemas/ids/8: HTTP status 503: busy; it is asked again"
    ]


def test_an_answer_that_breaks_off_is_asked_for_again(server: Server, connect: Connect) -> None:
    server.script(Answer(200, FOUND.body[:20], cut=True), FOUND)
    assert connect().by_id(7) == SCHEMA


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Answer(200, b"<html>Welcome</html>"), r"GET /schemas/ids/7: no JSON\): is url= the API's"),
        (Answer(200, b"\xff\xfe"), "no JSON"),
        (Answer(200, b"[" * 200_000), "no JSON"),
        (answer(200, ["schema"]), "an object with 'schema' of type str is expected"),
        (answer(200, {"schema": 5}), "an object with 'schema' of type str is expected"),
        (answer(200, {"schema": "int"}), "schema 7: the schema is not JSON"),
        (answer(200, {"schema": SCHEMA, "schemaType": "PROTOBUF"}), "schema 7 is of type PROTOBUF; only AVRO"),
        (
            answer(200, {"schema": SCHEMA, "references": [{"name": "a.Line", "subject": "line", "version": 1}]}),
            r"schema 7 refers to other schemas \(a.Line\), which is not supported",
        ),
        (Answer(200, b" " * (16 * 1024 * 1024 + 1)), "more than 16777216 bytes"),
        (answer(401, {"message": "no"}), "refuses GET /schemas/ids/7 with HTTP status 401: no: give the right auth="),
        (answer(403, {}), "status 403: it does not say why: these credentials do not allow it"),
        (answer(404, {"error_code": 404, "message": "HTTP 404"}), "status 404: HTTP 404: is url= that of the API"),
        (Answer(404, b"<html>"), "status 404: it does not say why: is url= that of the API"),
        (answer(302, {}, Location="https://u:hunter2@there/path?token=hunter2"), "give url= as https://there/path$"),
        (Answer(204), "status 204"),
        (answer(400, {"message": "x" * 5_000}), r"status 400: x{300}\.\.\.: is url="),
    ],
    ids=range(16),
)
def test_what_is_no_answer_of_a_registry_is_reported(
    server: Server, connect: Connect, given: Answer, message: str
) -> None:
    server.script(given)
    with pytest.raises(SchemaRegistryError, match=message) as caught:
        connect().by_id(7)
    assert server.url in str(caught.value)
    assert SECRET not in str(caught.value)
    assert not caught.value.retriable
    assert not isinstance(caught.value, UnknownSchema)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("call", "given", "message"),
    [
        (lambda it: it.subjects(), {"error": 1}, "GET /subjects: a list of str is expected"),
        (lambda it: it.subjects(), ["a", 1], "a list of str is expected"),
        (lambda it: it.versions("orders"), [True], "a list of int is expected"),
        (lambda it: it.register("orders", SCHEMA), {"id": "7"}, "an object with 'id' of type int is expected"),
        (lambda it: it.by_version("orders"), {"id": 7, "schema": SCHEMA}, "'version' of type int is expected"),
        (lambda it: it.by_version("orders", 3), json.loads(VERSION.body), "version 1 of 'orders' for version 3"),
    ],
    ids=range(6),
)
def test_each_answer_is_checked(
    server: Server, connect: Connect, call: Callable[[RestRegistry], object], given: object, message: str
) -> None:
    server.script(answer(200, given))
    with pytest.raises(SchemaRegistryError, match=message):
        call(connect())


@pytest.mark.parametrize(
    ("status", "message"), [(409, "is not compatible with those before it"), (422, "a valid Avro")]
)
def test_a_schema_may_be_refused(server: Server, connect: Connect, status: int, message: str) -> None:
    server.script(answer(status, {"error_code": status, "message": "no"}))
    with pytest.raises(SchemaRegistryError, match=message):
        connect().register("orders", SCHEMA)


def test_one_of_two_that_register_at_once_tries_again(server: Server, connect: Connect, time: Time) -> None:
    server.script(answer(409, {"error_code": 409, "message": "exists"}), answer(200, {"id": 7}))
    assert connect().register("orders", SCHEMA) == 7
    assert time.pauses == [0.05]


@pytest.mark.parametrize(
    ("subject", "path"),
    [
        ("orders", "/subjects/orders/versions/1"),
        ("a/b c", "/subjects/a%2Fb%20c/versions/1"),
        ("50%?#", "/subjects/50%25%3F%23/versions/1"),
        ("订单", "/subjects/%E8%AE%A2%E5%8D%95/versions/1"),
    ],
)
def test_subjects_are_escaped(server: Server, connect: Connect, subject: str, path: str) -> None:
    server.script(VERSION)
    connect(server.url + "/apis/ccompat/v7/").by_version(subject, 1)
    assert [request.path for request in server.requests] == ["/apis/ccompat/v7" + path]


@pytest.mark.parametrize("subject", ["", ".", ".."])
def test_a_subject_that_is_no_path_is_refused(server: Server, connect: Connect, subject: str) -> None:
    with pytest.raises(LocalError, match="cannot be a subject"):
        connect().by_version(subject)
    assert not server.requests


def test_a_registry_that_is_not_there_is_reported(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(
        RegistryUnavailable, match=f"{url} does not serve GET /subjects .*ConnectionRefused.*Is it running"
    ):
        connect(url).subjects()


def test_the_reason_is_not_what_the_caller_was_handling(connect: Connect) -> None:
    try:
        raise KeyError("handled")
    except KeyError:
        with pytest.raises(RegistryUnavailable, match="ConnectionRefusedError"):
            connect("http://127.0.0.1:1").subjects()


def test_a_registry_that_says_nothing_is_reported(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        registry = connect(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.05, retries=1)
        with pytest.raises(RegistryUnavailable, match=r"\(2 tries\): \w*[Tt]ime"):
            registry.subjects()
