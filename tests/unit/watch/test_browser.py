"""The page of `--web` in a real browser, on a phone and on a screen."""

from __future__ import annotations

import re

import pytest

from rmqio.watch.page import serving
from rmqio.watch.watcher import Watcher
from tests.helpers.browser import needs_browser, shown, texts
from tests.helpers.fakes.broker import FakeBroker


@needs_browser
@pytest.mark.parametrize("width", [390, 1280], ids=["phone", "screen"])
def test_the_page_shows_queues_brokers_and_plots(watcher: Watcher, width: int) -> None:
    watcher.poll()
    with serving(watcher, 0) as url:
        document = shown(url, width=width)
    text = texts(document)
    assert re.match(r"orders, group billing live, \d\d:\d\d:\d\d Lag 5 ", text), text
    for row in ("broker-a:0 3", "broker-a:1 2", "broker-b:0 0", "broker-b:1 0"):
        assert row in text, text
    assert re.search(r"broker-a up .* broker-b up", text), text
    plots = re.findall(r'<svg role="img" aria-label="([^"]+)"', document)
    assert plots == ["Lag in messages", "Oldest unread message waits", "Messages per second"]
    assert document.count("<path") >= len(plots), "a line in each"
    assert " Lag in messages 0 3 6 " in text, "labels of whole messages"


@needs_browser
def test_the_page_shows_that_a_broker_is_away(watcher: Watcher, broker: FakeBroker) -> None:
    broker.stop_broker("broker-b")
    watcher.poll()
    with serving(watcher, 0) as url:
        text = texts(shown(url))
    assert re.search(r"broker-b away", text), text
