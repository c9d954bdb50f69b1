"""`RestRegistry` against servers that fail in ways in which a real registry cannot be made to."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pickle
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pytest

from rmqio.errors import LocalError
from rmqio.serde.registry import (
    BasicAuth,
    MemoryRegistry,
    RegisteredSchema,
    RegistryUnavailable,
    RestRegistry,
    SchemaRegistryError,
    TokenAuth,
    UnknownSchema,
)
from rmqio.serde.registry.http import Timing

SCHEMA = '{"type":"record","name":"Order","fields":[]}'
SECRET = "hunter2"


class Answer(NamedTuple):
    """What the server sends. `cut`: it announces more than it sends, and hangs up."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    cut: bool = False


def answer(status: int, value: object, **headers: str) -> Answer:
    return Answer(status, json.dumps(value).encode(), tuple((k.replace("_", "-"), v) for k, v in headers.items()))


FOUND = answer(200, {"schema": SCHEMA})
VERSION = answer(200, {"subject": "orders", "version": 1, "id": 7, "schema": SCHEMA})


@dataclass
class Request:
    method: str
    path: str
    authorization: str | None
    content_type: str | None
    body: bytes


@dataclass
class Server:
    """A server on loopback that answers by `handle`, and keeps what it was asked."""

    handle: Callable[[Request], Answer]
    requests: list[Request] = field(default_factory=list)
    url: str = ""

    def script(self, *answers: Answer) -> None:
        """Answer these in turn, the last one for ever."""
        left = list(answers)
        self.handle = lambda request: left.pop(0) if len(left) > 1 else left[0]


@contextlib.contextmanager
def serving(handle: Callable[[Request], Answer], tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(handle)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one piece: the second would wait for the first one's delayed acknowledgement

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = Request(
                self.command, self.path, self.headers["Authorization"], self.headers["Content-Type"], body
            )
            server.requests.append(request)
            given = server.handle(request)
            self.send_response(given.status)
            for header in given.headers:
                self.send_header(*header)
            self.send_header("Content-Length", str(len(given.body) + 10 * given.cut))
            self.end_headers()
            self.wfile.write(given.body)
            self.close_connection = given.cut

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            pass  # clients that hang up are part of the tests

    with Quiet(("127.0.0.1", 0), Handler) as http:
        if tls is not None:
            http.socket = tls.wrap_socket(http.socket, server_side=True)
        server.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{http.server_address[1]}"
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()


def confluent(kept: MemoryRegistry) -> Callable[[Request], Answer]:
    """As much of the API as the client uses."""

    def handle(request: Request) -> Answer:
        try:
            match [unquote(part) for part in request.path.split("/")[1:]]:
                case ["subjects"]:
                    return answer(200, kept.subjects())
                case ["schemas", "ids", schema_id]:
                    return answer(200, {"schema": kept.by_id(int(schema_id))})
                case ["subjects", subject, "versions"] if request.method == "POST":
                    return answer(200, {"id": kept.register(subject, json.loads(request.body)["schema"])})
                case ["subjects", subject, "versions"]:
                    return answer(200, kept.versions(subject))
                case ["subjects", subject, "versions", version]:
                    found = kept.by_version(subject, None if version == "latest" else int(version))
                    return answer(200, found._asdict())
        except UnknownSchema as error:
            return answer(404, {"error_code": 40401, "message": str(error)})
        return answer(404, {"error_code": 404, "message": "HTTP 404 Not Found"})

    return handle


@dataclass
class Time:
    """A clock that stands still but for pauses, which take no time."""

    now: float = 1_000.0
    pauses: list[float] = field(default_factory=list)

    def wait(self, closed: threading.Event, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.now += seconds
        return closed.is_set()

    def timing(self) -> Timing:
        return Timing(clock=self.clock, wait=self.wait, random=self.random)

    def clock(self) -> float:
        return self.now

    def random(self) -> float:
        return 0.5


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(lambda request: FOUND) as running:
        yield running


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def connect(server: Server, time: Time) -> Iterator[Callable[..., RestRegistry]]:
    """Makes registries, and closes them."""
    with contextlib.ExitStack() as stack:

        def make(url: str | None = None, **arguments: Any) -> RestRegistry:
            registry = RestRegistry(url or server.url, timing=time.timing(), **arguments)
            stack.callback(registry.close)
            return registry

        yield make


Connect = Callable[..., RestRegistry]


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
def test_what_is_no_answer_of_a_registry_is_told(server: Server, connect: Connect, given: Answer, message: str) -> None:
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


def test_what_never_changes_is_asked_for_once(server: Server, connect: Connect) -> None:
    server.script(VERSION)
    registry = connect()
    for _ in range(3):
        assert registry.by_version("orders", 1) == RegisteredSchema("orders", 1, 7, SCHEMA)
        assert registry.by_id(7) == SCHEMA
    assert len(server.requests) == 1


def test_a_schema_is_registered_once(server: Server, connect: Connect) -> None:
    server.script(answer(200, {"id": 7}))
    registry = connect()
    assert [registry.register("orders", text) for text in (SCHEMA, SCHEMA.replace(",", " ,\n"))] == [7, 7]
    assert [json.loads(request.body) for request in server.requests] == [{"schema": SCHEMA}]
    assert server.requests[0].content_type == "application/vnd.schemaregistry.v1+json"


def test_the_newest_version_is_asked_for_again_after_a_while(server: Server, connect: Connect, time: Time) -> None:
    kept = MemoryRegistry()
    kept.register("orders", SCHEMA)
    server.handle = confluent(kept)
    registry = connect(latest_ttl_s=60.0)
    assert registry.by_version("orders").version == 1
    kept.register("orders", '"int"')
    time.now += 59
    assert registry.by_version("orders").version == 1
    time.now += 2
    assert registry.by_version("orders").version == 2


def test_the_newest_version_is_asked_for_after_one_was_registered(server: Server, connect: Connect) -> None:
    server.handle = confluent(MemoryRegistry())
    registry = connect()
    registry.register("orders", SCHEMA)
    assert registry.by_version("orders").version == 1
    registry.register("orders", '"int"')
    assert registry.by_version("orders").version == 2


def test_what_is_known_is_used_while_the_registry_is_down(
    server: Server, connect: Connect, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    server.script(VERSION)
    registry = connect(latest_ttl_s=60.0)
    registry.by_version("orders")
    server.script(answer(503, {}))
    time.now += 61
    for _ in range(5):
        assert registry.by_version("orders").version == registry.by_version("orders", 1).version == 1
        assert registry.by_id(7) == SCHEMA
    assert len(server.requests) == 1 + 4, "it was asked again once, with its tries"
    assert "version 1 of 'orders' is still considered the newest: schema registry" in caplog.text
    with pytest.raises(RegistryUnavailable):
        registry.by_id(8)
    with pytest.raises(RegistryUnavailable):
        registry.by_version("others")
    server.script(answer(200, {"subject": "orders", "version": 2, "id": 8, "schema": SCHEMA}))
    time.now += 31
    assert registry.by_version("orders").version == 2


def test_an_unknown_id_is_not_asked_for_in_each_message(server: Server, connect: Connect, time: Time) -> None:
    server.script(answer(404, {"error_code": 40403, "message": "Schema not found"}))
    registry = connect()
    for _ in range(5):
        with pytest.raises(UnknownSchema, match=r"GET /schemas/ids/7: Schema not found \(code 40403\)"):
            registry.by_id(7)
    assert len(server.requests) == 1
    server.script(FOUND)
    time.now += 6
    assert registry.by_id(7) == SCHEMA


def test_unknown_ids_do_not_fill_the_memory(server: Server, connect: Connect) -> None:
    server.script(answer(404, {"error_code": 40403, "message": "Schema not found"}))
    registry = connect()
    for schema_id in range(1_100):
        with pytest.raises(UnknownSchema):
            registry.by_id(schema_id)
    assert len(registry._state.unknown) <= 1_024


@pytest.mark.parametrize("schema_id", [-1, 2**31, 2**40])
def test_what_can_be_no_id_is_not_asked_for(server: Server, connect: Connect, schema_id: int) -> None:
    with pytest.raises(UnknownSchema, match=f"{schema_id} cannot be an id"):
        connect().by_id(schema_id)
    assert not server.requests


def test_fingerprints_cannot_be_looked_for(server: Server, connect: Connect) -> None:
    with pytest.raises(UnknownSchema, match="Confluent's API cannot search for the fingerprint 0102030405060708"):
        connect().by_fingerprint(bytes(range(1, 9)))
    assert not server.requests


def test_a_registry_that_is_not_there_is_told(connect: Connect) -> None:
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


def test_a_registry_that_says_nothing_is_told(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        registry = connect(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.05, retries=1)
        with pytest.raises(RegistryUnavailable, match=r"\(2 tries\): \w*[Tt]ime"):
            registry.subjects()


def test_closing_ends_the_pauses_of_other_threads(server: Server) -> None:
    server.script(answer(503, {}, Retry_After="3600"))
    pausing = threading.Event()

    def wait(closed: threading.Event, seconds: float) -> bool:
        pausing.set()
        return closed.wait(60 * seconds)

    registry = RestRegistry(server.url, timing=Timing(wait=wait))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(registry.by_id, 7)
        assert pausing.wait(60)
        registry.close()
        with pytest.raises(RegistryUnavailable, match="was closed between two tries"):
            asked.result()
    server.script(FOUND)
    assert registry.by_id(7) == SCHEMA  # it opens anew
    registry.close()
    registry.close()


def a_token() -> str:
    return "from a function".replace(" ", "-")


@pytest.mark.parametrize(
    ("auth", "header"),
    [
        (None, None),
        (BasicAuth("me", "pässword"), "Basic bWU6cMOkc3N3b3Jk"),
        (BasicAuth("me", a_token), "Basic bWU6ZnJvbS1hLWZ1bmN0aW9u"),
        (TokenAuth("abc"), "Bearer abc"),
        (TokenAuth(a_token), "Bearer from-a-function"),
    ],
    ids=range(5),
)
def test_credentials_are_sent(
    server: Server,
    connect: Connect,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    auth: BasicAuth | TokenAuth | None,
    header: str | None,
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login other password {SECRET}\n")
    monkeypatch.setenv("NETRC", str(netrc))  # what the HTTP library would fall back to
    connect(auth=auth).by_id(7)
    assert [request.authorization for request in server.requests] == [header]


def test_a_function_is_asked_for_a_token_each_time(server: Server, connect: Connect) -> None:
    tokens = iter(["one", "two", "three"])
    server.script(answer(503, {}), FOUND)
    registry = connect(auth=TokenAuth(lambda: next(tokens)))
    registry.by_id(7)
    registry.by_id(8)
    assert [request.authorization for request in server.requests] == ["Bearer one", "Bearer two", "Bearer three"]


def test_a_function_that_fails_may_be_asked_again(server: Server, connect: Connect) -> None:
    def fail() -> str:
        raise OSError(SECRET)

    with pytest.raises(RegistryUnavailable, match="the function that returns its credentials raised OSError") as caught:
        connect(auth=TokenAuth(fail)).by_id(7)
    assert SECRET not in str(caught.value)
    assert not server.requests


@pytest.mark.parametrize("token", ["", f"{SECRET}\n", f"{SECRET} {SECRET}", f"{SECRET}ü"])
def test_a_token_that_no_header_may_hold_is_refused_without_being_quoted(connect: Connect, token: str) -> None:
    with pytest.raises(LocalError, match="the token of TokenAuth is empty or contains") as caught:
        connect(auth=TokenAuth(token)).by_id(7)
    assert SECRET not in str(caught.value)


def test_credentials_in_the_url_are_taken_apart(server: Server, connect: Connect) -> None:
    url = server.url.replace("//", "//me%40here:hunter%32@")
    registry = connect(url)
    assert registry == connect(server.url, auth=BasicAuth("me@here", SECRET))
    registry.by_id(7)
    assert server.requests[0].authorization == "Basic bWVAaGVyZTpodW50ZXIy"
    with pytest.raises(LocalError, match="credentials are given both in url= and in auth="):
        connect(url, auth=TokenAuth("x"))


@pytest.mark.parametrize("auth", [BasicAuth("me", SECRET), TokenAuth(SECRET)], ids=["basic", "token"])
def test_credentials_are_in_no_text(server: Server, connect: Connect, auth: BasicAuth | TokenAuth) -> None:
    registry = connect(auth=auth)
    assert SECRET not in repr(registry) + str(pickle.loads(pickle.dumps(registry)))
    server.script(answer(503, {}))
    errors = []
    for given in (answer(503, {}), answer(401, {}), Answer(200, b"x"), Answer(200, b"x", cut=True)):
        server.script(given)
        with pytest.raises(SchemaRegistryError) as caught:
            registry.by_id(7)
        errors.append(caught.value)
    for error in errors:
        assert SECRET not in f"{error!r} {error.__cause__!r} {vars(error)} {getattr(error.__cause__, '__dict__', '')}"


def test_unencrypted_credentials_are_warned_of_once(caplog: pytest.LogCaptureFixture, connect: Connect) -> None:
    registry = connect("http://nowhere.invalid", auth=BasicAuth("me", SECRET), retries=0)
    for _ in range(2):
        with pytest.raises(RegistryUnavailable):
            registry.subjects()
    assert caplog.text.count("credentials are sent unencrypted to the schema registry http://nowhere.invalid") == 1
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"ftp://me:{SECRET}@host", "must be like https://host:port/path"),
        (f"me:{SECRET}@host:8081", "must be like https"),
        (f"http://me:{SECRET}@", "must be like https"),
        (f"http://me:{SECRET}@host:port", "its host or port cannot be read"),
        (f"http://me:{SECRET}@[::1", "its host or port cannot be read"),
        (f"http://host/?token={SECRET}", "must end with its path"),
        ("http://host/#x", "must end with its path"),
    ],
)
def test_a_url_that_is_none_is_refused_without_being_quoted(url: str, message: str) -> None:
    with pytest.raises(LocalError, match=message) as caught:
        RestRegistry(url)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"timeout_s": 0}, "timeout_s=0: it must be more than 0 seconds"),
        ({"timeout_s": float("nan")}, "timeout_s=nan"),
        ({"retries": -1}, "retries=-1: it must be 0 or more"),
        ({"latest_ttl_s": -0.5}, "latest_ttl_s=-0.5: it must be 0 seconds or more"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(LocalError, match=message):
        RestRegistry("http://host", **arguments)


def test_registries_are_equal_by_configuration() -> None:
    assert RestRegistry("http://host/") == RestRegistry("http://host")
    assert hash(RestRegistry("http://host/")) == hash(RestRegistry("http://host"))
    assert RestRegistry("http://host") != RestRegistry("http://host", auth=TokenAuth("x"))


def test_a_pickled_registry_has_its_configuration_and_nothing_else(server: Server) -> None:
    registry = RestRegistry(server.url, auth=TokenAuth(a_token), retries=0)
    registry.by_id(7)
    copy = pickle.loads(pickle.dumps(registry))
    assert copy == registry
    assert copy.by_id(7) == SCHEMA
    assert len(server.requests) == 2
    assert b"from-a-function" not in pickle.dumps(registry)
    registry.close()
    copy.close()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # that threads run while it forks is the point
def test_a_fork_has_connections_of_its_own(server: Server) -> None:
    """The child's requests would otherwise mix with the parent's on one connection."""
    registry = RestRegistry(server.url)
    registry.by_id(1)

    def ask(numbers: range) -> None:
        code = 1
        try:
            code = 0 if all(registry.by_id(number) == SCHEMA for number in numbers) else 2
        finally:
            os._exit(code)

    # Held as by another thread of the parent in the moment of the fork: nobody would ever release it in the child.
    with registry._http.connections.lock:
        children = [
            multiprocessing.get_context("fork").Process(target=ask, args=(range(start, start + 20),), daemon=True)
            for start in (100, 200)
        ]
        for child in children:
            child.start()
    assert all(registry.by_id(number) == SCHEMA for number in range(300, 320))
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0]
    assert len(server.requests) == 61
    registry.close()


def test_threads_share_a_registry(server: Server, connect: Connect) -> None:
    kept = MemoryRegistry()
    schemas = [f'{{"type":"fixed","name":"F","size":{size}}}' for size in range(1, 40)]
    ids = [kept.register("fixed", schema) for schema in schemas]
    server.handle = confluent(kept)
    registry = connect()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(registry.by_id, ids * 5))
    assert found == schemas * 5
    assert len(server.requests) <= 8 * len(ids)


@dataclass(frozen=True)
class Certificates:
    """Of an authority, and of server and client that it vouches for: PEM files."""

    authority: str
    server: str
    client: tuple[str, str]
    stranger: str


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificates, is not on PATH")
    folder = tmp_path_factory.mktemp("certificates")

    def run(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    for authority in ("authority", "stranger"):
        names = ["-keyout", f"{authority}.key", "-out", f"{authority}.pem", "-subj", f"/CN={authority}"]
        run("req", "-x509", *key, *names, "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
    for name in ("server", "client"):
        run("req", *key[:-2], "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        run("x509", "-req", "-in", f"{name}.csr", "-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial",
            "-days", "2", "-extfile", "names", "-out", f"{name}.pem")  # fmt: skip
    (folder / "server-both.pem").write_text((folder / "server.key").read_text() + (folder / "server.pem").read_text())
    path = {name: str(folder / name) for name in os.listdir(folder)}
    return Certificates(
        path["authority.pem"], path["server-both.pem"], (path["client.pem"], path["client.key"]), path["stranger.pem"]
    )


@pytest.fixture
def secure(certificates: Certificates) -> Iterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server)
    with serving(lambda request: FOUND, context) as running:
        yield running


def test_a_registry_behind_tls(secure: Server, connect: Connect, certificates: Certificates) -> None:
    assert connect(secure.url, ca_file=certificates.authority, auth=TokenAuth("abc")).by_id(7) == SCHEMA
    assert secure.requests[0].authorization == "Bearer abc"


@pytest.mark.parametrize("trusted", ["none", "stranger", "missing", "name"])
def test_a_registry_that_is_not_trusted_learns_nothing(
    secure: Server, connect: Connect, time: Time, certificates: Certificates, trusted: str
) -> None:
    ca_file = {"none": None, "stranger": certificates.stranger, "missing": "/no/such/file"}.get(
        trusted, certificates.authority
    )
    url = secure.url.replace("127.0.0.1", "localhost") if trusted == "name" else secure.url
    with pytest.raises(SchemaRegistryError, match=r"cannot be reached: .*Check url=, ca_file=") as caught:
        connect(url, ca_file=ca_file, auth=TokenAuth(SECRET)).by_id(7)
    assert not caught.value.retriable
    assert not time.pauses
    assert not secure.requests


def test_a_registry_that_hangs_up_during_the_handshake_is_tried_again(connect: Connect, time: Time) -> None:
    def hang_up() -> None:
        for _ in range(2):
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        with pytest.raises(RegistryUnavailable, match=r"\(2 tries\): SSLEOFError"):
            connect(f"https://127.0.0.1:{listening.getsockname()[1]}", retries=1).by_id(7)
        thread.join()


def test_a_client_certificate(connect: Connect, certificates: Certificates) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server)
    context.load_verify_locations(certificates.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    with serving(lambda request: FOUND, context) as mutual:
        registry = connect(mutual.url, ca_file=certificates.authority, client_certificate=certificates.client)
        assert registry.by_id(7) == SCHEMA
        with pytest.raises(SchemaRegistryError):
            connect(mutual.url, ca_file=certificates.authority, retries=0).by_id(7)
        registry.close()


def test_fastavro_is_not_needed_to_import_it() -> None:
    program = (
        "import sys; sys.modules['fastavro'] = None; from rmqio.serde.registry import *;"
        "registry = MemoryRegistry(); registry.register('a', '\"int\"'); registry.by_fingerprint(bytes(8))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert re.search(r"need fastavro: pip install 'rmqio\[avro\]'", ended.stderr)
