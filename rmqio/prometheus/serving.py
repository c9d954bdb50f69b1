"""The HTTP server of the metrics. They have the names of topics: a page elsewhere whose name leads here gets none."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer, _get_best_family

from rmqio.addresses import is_loopback_name


def metrics_server(host: str, port: int, registry: Any) -> WSGIServer:
    """Returns a server that listens, for `serve_forever`. Raises `OSError` if the port is taken."""
    family, address = _get_best_family(host, port)  # type: ignore[no-untyped-call]
    is_local = ipaddress.ip_address(address).is_loopback

    class Server(ThreadingWSGIServer):
        address_family = family
        request_queue_size = 128

    return make_server(address, port, _app(registry, is_local), Server, handler_class=_Handler)


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Requests come every few seconds: they are not logged."""


def _app(registry: Any, is_local: bool) -> Callable[..., Iterable[bytes]]:
    metrics: Callable[..., Iterable[bytes]] = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if is_local and not is_loopback_name(environ.get("HTTP_HOST", "")):
            start_response("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"these metrics are for 127.0.0.1 and localhost only\n"]
        if environ["PATH_INFO"] != "/metrics":
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"there is /metrics\n"]
        if environ["REQUEST_METHOD"] != "HEAD":
            return metrics(environ, start_response)
        given: list[Any] = []
        body = b"".join(metrics({**environ, "REQUEST_METHOD": "GET"}, lambda *answer: given.extend(answer)))
        start_response(given[0], [*given[1], ("Content-Length", str(len(body)))])
        return []

    return app
