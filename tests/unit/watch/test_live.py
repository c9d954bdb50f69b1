"""The view on a real terminal: it is drawn again and again, and Ctrl-C leaves the screen as it was."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import uuid

import pytest

pytest.importorskip("rich", reason="the extra watch")

from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.terminal import CTRL_C, on_terminal
from tests.helpers.waiting import at_most, until


def command_on(broker: FakeBroker) -> list[str]:
    told = ["watch", "--topic", "orders", "--group", "billing", "--every", "0.2"]
    return [sys.executable, "-m", "rmqio", *told, "--name_server", broker.name_server]


def test_a_terminal_shows_what_changes_until_ctrl_c(broker: FakeBroker) -> None:
    with on_terminal(command_on(broker), dict(os.environ) | {"TERM": "xterm"}) as shown:
        shown.wait_for(r"rmqio watch: orders, group billing +\d\d:\d\d:\d\d, every 0.2 s, Ctrl-C ends it")
        shown.wait_for("lag 5 ")
        broker.stop_broker("broker-b")
        shown.wait_for(r"broker-b +away +\d\d:\d\d:\d\d")
        broker.start_broker("broker-b")
        shown.wait_for(r"broker-b +up")
        shown.type(CTRL_C)
        shown.wait_for("rmqio: ended by Ctrl-C")
        assert "\x1b[?1049l" in shown._raw, "the alternate screen is left"
        assert "\x1b[?25h" in shown._raw, "the cursor is back"


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
@pytest.mark.parametrize(("columns", "lines"), [(50, 12), (80, 24)])
def test_in_tmux_the_view_follows_the_size_of_the_pane(broker: FakeBroker, columns: int, lines: int) -> None:
    tmux = ["tmux", "-L", f"rmqio-{uuid.uuid4().hex[:8]}", "-f", os.devnull]

    # readline sets COLUMNS and LINES past os.environ; processes of pytest-xdist inherit them, and have them there.
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}

    def run(*words: str) -> str:
        command = [*tmux, *words]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=at_most(30), check=True
        ).stdout

    run("-u", "new-session", "-d", "-x", str(columns), "-y", str(lines), *command_on(broker))
    try:
        until(lambda: "lag 5 " in run("capture-pane", "-p"), "the first look")
        broker.stop_broker("broker-b")

        def all_is_there() -> bool:
            pane = run("capture-pane", "-p")  # it can be between two drawings
            queues = re.findall("^broker-[ab]:", pane, re.MULTILINE)
            title = pane.startswith("rmqio watch: orders, group billing")
            return title and len(queues) == 4 and re.search("broker-b +away ", pane) is not None

        until(all_is_there, "broker-b to be away, and all queues", details=lambda: run("capture-pane", "-p"))
        run("resize-window", "-x", "100", "-y", "30")
        until(lambda: "every 0.2 s, Ctrl-C ends it" in run("capture-pane", "-p"), "the larger view")
    finally:
        run("kill-server")
