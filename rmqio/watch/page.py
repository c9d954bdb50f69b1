"""The page of `--web`: one file and one JSON endpoint, on loopback only."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, Final, NoReturn
from urllib.parse import parse_qs, urlsplit

from rmqio.addresses import is_loopback_name
from rmqio.command_line.output import note
from rmqio.errors import LocalError, RmqioError
from rmqio.watch.watcher import Watcher

_HOST: Final = "127.0.0.1"
_TIME: Final = re.compile("[0-9]{1,18}")
_HEADERS: Final = {
    # The page is one file: nothing else may be loaded, and no other page may frame it.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline';"
    " connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def serve(watcher: Watcher, port: int) -> NoReturn:
    """Serve the page until Ctrl-C, or what ended the polls: both are raised."""
    with serving(watcher, port) as url:
        note(f"the page is at {url}, Ctrl-C ends it")
        while True:
            watcher.frame()
            time.sleep(1.0)


@contextmanager
def serving(watcher: Watcher, port: int) -> Iterator[str]:
    """Serve the page in a thread, and give its URL. Raises `LocalError` if the port is taken."""

    class Handler(_Handler):
        seen = watcher

    try:
        server = _Server((_HOST, port), Handler)
    except OSError as error:
        raise LocalError(f"--web {port}: cannot listen on {_HOST}:{port} ({error}); choose another port") from error
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield f"http://{_HOST}:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    """Says nothing of a browser that went away, nor of what ended the polls, which `serve` raises."""

    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], (OSError, RmqioError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers `/` with the page and `/frame.json?after=MS` with the newest frame and the points after a time."""

    seen: Watcher
    protocol_version = "HTTP/1.1"
    timeout = 30
    server_version = "rmqio"
    sys_version = ""

    def do_GET(self) -> None:
        if not is_loopback_name(self.headers.get("Host", "")):
            # A page elsewhere whose name leads here (DNS rebinding) must not read the names of topics.
            self._answer(403, "text/plain", b"this page is for 127.0.0.1 and localhost only\n")
            return
        parts = urlsplit(self.path)
        if parts.path == "/":
            self._answer(200, "text/html; charset=utf-8", files("rmqio.watch").joinpath("page.html").read_bytes())
        elif parts.path == "/frame.json":
            after = parse_qs(parts.query).get("after", ["0"])[0]
            self._answer(200, "application/json", self._frame(int(after) if _TIME.fullmatch(after) else 0))
        else:
            self._answer(404, "text/plain", b"there are / and /frame.json\n")

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Requests come each second: they are not logged."""

    def _frame(self, after_ms: int) -> bytes:
        found = self.seen.frame().fields() | {"points": self.seen.points(after_ms)}
        return json.dumps(found).encode()

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
