"""A server on loopback that acts as a schema registry, and the clock of its client."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import unquote

from rmqio.serde.registry import MemoryRegistry, RestRegistry, UnknownSchema
from rmqio.serde.registry.http import Timing

SCHEMA = '{"type":"record","name":"Order","fields":[]}'
SECRET = "hunter2"


class Answer(NamedTuple):
    """An answer of the server. `cut`: the server announces more than it sends, and closes the connection."""

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
    """A server on loopback that answers with `handle` and keeps the requests."""

    handle: Callable[[Request], Answer]
    requests: list[Request] = field(default_factory=list)
    url: str = ""

    def script(self, *answers: Answer) -> None:
        """Answers with these in turn, and with the last one forever."""
        left = list(answers)
        self.handle = lambda request: left.pop(0) if len(left) > 1 else left[0]


@contextlib.contextmanager
def serving(handle: Callable[[Request], Answer], tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(handle)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # sends head and body together: a separate body would wait for a delayed acknowledgement

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
            pass  # clients that close the connection are part of the tests

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
    """Implements as much of the API as the client uses."""

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
    """A clock that only moves by pauses, which take no real time."""

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


Connect = Callable[..., RestRegistry]
"""Makes a registry with these arguments, for the test's server and clock."""
