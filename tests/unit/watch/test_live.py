"""The view on a real terminal: it is drawn again and again, and Ctrl-C leaves the screen as it was."""

from __future__ import annotations

import os
import sys

import pytest

pytest.importorskip("rich", reason="the extra watch")

from rmqio.testing import FakeBroker
from tests.helpers.terminal import CTRL_C, on_terminal


def test_a_terminal_shows_what_changes_until_ctrl_c(broker: FakeBroker) -> None:
    told = ["watch", "--topic", "orders", "--group", "billing", "--every", "0.2", "--timeout_ms", "500"]
    command = [sys.executable, "-m", "rmqio", *told, "--name_server", broker.name_server]
    with on_terminal(command, dict(os.environ) | {"TERM": "xterm"}) as shown:
        shown.wait_for(r"rmqio watch: orders, group billing +\d\d:\d\d:\d\d, every 0.2 s, Ctrl-C ends it")
        shown.wait_for("lag 5 ")
        broker.pause_broker("broker-b")
        shown.wait_for(r"broker-b +away +\d\d:\d\d:\d\d")
        broker.resume_broker("broker-b")
        shown.wait_for(r"broker-b +up")
        shown.type(CTRL_C)
        shown.wait_for("rmqio: ended by Ctrl-C")
        assert "\x1b[?1049l" in shown._raw, "the alternate screen is left"
        assert "\x1b[?25h" in shown._raw, "the cursor is back"
