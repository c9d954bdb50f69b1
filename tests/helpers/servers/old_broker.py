"""RocketMQ 4.9.7: reading, writing and the demo's pipeline pass the same tests as on 5.5.0.

They are in `make test-all PART=systems`. Run as a module, this fetches what they need. Not among the tests, because
these brokers differ: searches by time (they may give the message before the time), the offset of a group never seen (0,
not none: a late queue is read from there), messages delivered at a given time, topic attributes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rmqio.local.artefacts import read_lock
from rmqio.local.fetch import fetch

LOCK: Final = Path(__file__).with_name("rocketmq-4.9.7.lock.json")
_TESTS: Final = "tests/integration"
FILES: Final = tuple(
    f"{_TESTS}/{name}.py"
    for name in ("client/test_reading", "reading/test_filters", "reading/test_endless", "pipelines/test_province")
)
DIFFERS: Final = (
    f"{_TESTS}/reading/test_endless.py::test_a_queue_added_while_it_runs_is_read_from_where_the_option_says[latest-10]"
)
ENTER: Final = (
    *("unshare", "--net", "--map-root-user", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"),
    *("env", f"RMQIO_LOCAL_LOCK={LOCK}"),
)
"""Before a command: it runs without a network, and its brokers are old. Needs Linux and iproute2."""

if __name__ == "__main__":
    from rmqio.runners.flink import jobserver

    fetch(read_lock(LOCK))
    fetch(read_lock(jobserver.LOCK))  # a pipeline among the tests runs on Flink, too
