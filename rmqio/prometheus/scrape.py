"""Reads what an exporter serves, ours or another one: the values by name."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from rmqio.errors import LocalError, TransportError

_MOST_BYTES: Final = 16_000_000


class Sample(NamedTuple):
    """One value."""

    name: str
    """As it is shown: counters end in `_total`."""
    labels: dict[str, str]
    value: float


def metrics_url(text: str) -> str:
    """Return the whole URL of an exporter: `127.0.0.1:9464` is `http://127.0.0.1:9464/metrics`.

    Raises `LocalError` for what is not a URL of HTTP.
    """
    given = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(given)
        # A word alone is as likely a mistake as a host with an exporter on port 80
        is_whole = given == text or parts.port is not None
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0 and is_whole
    except ValueError:
        is_valid = False
    if not is_valid or any(character.isspace() for character in given):
        raise LocalError(f"{text!r} is not the URL of an exporter; it must be like 127.0.0.1:9464, or http://h/metrics")
    return given if parts.path.strip("/") or parts.query else f"{given.rstrip('/')}/metrics"


def scrape(url: str, timeout_s: float) -> list[Sample]:
    """Return what the exporter serves now. Raises `TransportError` if it does not answer, or with something else."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            text = answer.read(_MOST_BYTES + 1)
    except (OSError, http.client.HTTPException, urllib.error.URLError) as error:
        raise TransportError(f"metrics {url}: {getattr(error, 'reason', None) or error}") from error
    if len(text) > _MOST_BYTES:
        raise TransportError(f"metrics {url}: the answer has more than {_MOST_BYTES // 1_000_000} MB")
    try:
        families = list(text_string_to_metric_families(text.decode()))
    except (ValueError, KeyError, IndexError) as error:
        raise TransportError(f"metrics {url}: the answer is not in Prometheus' text format") from error
    return [Sample(s.name, dict(s.labels), float(s.value)) for family in families for s in family.samples]
