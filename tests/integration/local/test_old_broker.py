"""RocketMQ 4.9.7: reading, writing and the demo's pipeline pass the same tests as on 5.5.0.

Brokers before 5.0 listen on every interface, whatever is configured, so the tests run in a network namespace that has
nothing but a loopback. Not among them, because these brokers differ: searches by time (they may give the message before
the time), the offset of a group never seen (0, not none: a late queue is read from there), messages delivered at a
given time, topic attributes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rmqio.local.artefacts import read_lock
from rmqio.local.fetch import fetch

ROOT = Path(__file__).resolve().parents[3]
LOCK = ROOT / "tests/helpers/servers/rocketmq-4.9.7.lock.json"
FILES = ["client/test_reading", "reading/test_filters", "reading/test_endless", "pipelines/test_province"]
ADDED = "test_a_queue_added_while_it_runs_is_read_from_where_the_option_says[latest-10]"
DIFFERS = f"tests/integration/reading/test_endless.py::{ADDED}"
ENTER = ["unshare", "--net", "--map-root-user", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.systems, pytest.mark.timeout(600)]


def _can_enter() -> bool:
    return (
        shutil.which("unshare") is not None
        and shutil.which("ip") is not None
        and subprocess.run([*ENTER, "true"], capture_output=True, check=False).returncode == 0
    )


@pytest.mark.skipif(not _can_enter(), reason="needs Linux, iproute2 and the right to make a network namespace")
def test_an_old_broker_passes_the_same_tests() -> None:
    fetch(read_lock(LOCK))  # while there is a network
    files = [f"tests/integration/{name}.py" for name in FILES]
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "broker"]
    command = [*ENTER, *pytest_, f"--deselect={DIFFERS}", *files]
    environment = os.environ | {"RMQIO_LOCAL_LOCK": str(LOCK)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
    assert " passed" in done.stdout
