"""The pipeline's own metrics: what an exporter serves becomes delay, rates and errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

pytest.importorskip("prometheus_client", reason="the extra watch")

from rmqio.errors import LocalError, TransportError
from rmqio.prometheus.export import metrics_url, scrape
from rmqio.telemetry import METRICS, Kind
from rmqio.watch.watcher import ERRORS, Pipeline

PAGE = """\
# HELP rmqio_records_read messages
# TYPE rmqio_records_read counter
rmqio_records_read_total{topic="orders",broker="a",queue="0"} %d.0
rmqio_records_read_total{topic="orders",broker="a",queue="1"} 5.0
# TYPE rmqio_lag_seconds gauge
rmqio_lag_seconds{topic="orders",broker="a",queue="0"} 3.5
rmqio_lag_seconds{topic="orders",broker="a",queue="1"} 12.25
rmqio_watermark_lag_seconds{topic="orders",broker="a",queue="0"} 60.5
# TYPE rmqio_decode_failures counter
rmqio_decode_failures_total{topic="orders"} %d.0
# TYPE rmqio_send_retries counter
rmqio_send_retries_total 0.0
"""


@contextmanager
def serving(bodies: list[bytes]) -> Iterator[str]:
    """Serves the bodies in turn, the last one again and again."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = bodies.pop(0) if len(bodies) > 1 else bodies[0]
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield metrics_url(f"127.0.0.1:{server.server_address[1]}")
        finally:
            server.shutdown()
            thread.join()


def test_delay_rates_and_errors() -> None:
    with serving([(PAGE % (100, 2)).encode(), (PAGE % (300, 5)).encode()]) as url:
        pipeline = Pipeline(url, 1, 5)
        first = pipeline.look(1_000_000)
        assert (first.lag_s, first.watermark_lag_s, first.read_per_s) == (12.25, 60.5, None)
        assert (dict(first.errors), first.new_errors) == ({"decode_failures": 2}, 0)
        second = pipeline.look(1_002_000)
    assert (second.read_per_s, second.sent_per_s) == (100, None)
    assert (dict(second.errors), second.new_errors, second.error) == ({"decode_failures": 5}, 3, None)
    gone = pipeline.look(1_005_000)
    assert gone.error is not None
    assert url in gone.error
    assert (gone.answered_ms, gone.lag_s) == (1_002_000, 12.25)


def test_a_new_run_counts_from_zero() -> None:
    with serving([(PAGE % (100, 7)).encode(), (PAGE % (10, 1)).encode()]) as url:
        pipeline = Pipeline(url, 1, 5)
        pipeline.look(1_000_000)
        second = pipeline.look(1_001_000)
    assert second.new_errors == 1
    assert second.read_per_s is None, "not a negative rate"


@pytest.mark.parametrize("body", [b"<html>a login page</html>", b"\xff\xfe", b'a{b="c" 1'])
def test_an_answer_that_is_something_else(body: bytes) -> None:
    with serving([body]) as url, pytest.raises(TransportError, match="not in Prometheus' text format"):
        scrape(url, 5)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("127.0.0.1:9464", "http://127.0.0.1:9464/metrics"),
        ("http://host:9464/", "http://host:9464/metrics"),
        ("https://host/other", "https://host/other"),
        ("http://[::1]:9464", "http://[::1]:9464/metrics"),
    ],
)
def test_urls(given: str, url: str) -> None:
    assert metrics_url(given) == url


@pytest.mark.parametrize("given", ["", "ftp://host", "host:port", "http://", "http://a b"])
def test_what_is_no_url(given: str) -> None:
    with pytest.raises(LocalError, match="is not the URL of an exporter"):
        metrics_url(given)


def test_errors_are_counters_that_there_are() -> None:
    assert [name for name in ERRORS if METRICS[name].kind is not Kind.COUNTER] == []
    wrong = {name for name in METRICS if name.endswith(("_failures", "_retries"))}
    assert wrong <= {*ERRORS}, "each shows"
