"""RocketMQ's own tool shows how far behind the group of a pipeline is, although the group has no online client."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqio import StopAt
from tests.helpers.command_line import Tool
from tests.helpers.ledgers.ledger import Lab, finished, new_group
from tests.helpers.servers.mqadmin import mqadmin

pytestmark = pytest.mark.broker


def test_consumer_progress_shows_offsets_and_lag_of_a_pipelines_group(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    q0, q1 = lab.topic(30, 5)
    group = new_group()
    finished(lab.read(q0.topic, consumer_group=group, stop=StopAt.offsets({q0: 25, q1: 5})))
    lab.send(q1, 2)
    to = ("consumerProgress", "-n", lab.broker.name_server, "-g", group)

    def progress(*more: str) -> tuple[dict[int, list[str]], bool]:
        shown = [line.split() for line in mqadmin(tmp_path, *to, *more).splitlines()]
        rows = {int(line[2]): (line[3:6]) for line in shown if line[:2] == [q0.topic, q0.broker]}
        return rows, ["Consume", "Diff", "Total:", "7"] in shown

    expected = {0: ["30", "25", "5"], 1: ["7", "5", "2"]}, True
    assert progress("-t", q0.topic) == expected, "end of the queue, offset of the group, lag; and the sum"
    # Without the topic, it looks for the group's retry topic, which a consumer of the official client creates.
    assert f"No topic route info in name server for the topic: %RETRY%{group}" in mqadmin(tmp_path, *to)
    rmqio = Tool(lab.broker.name_server, capsys)
    for _ in range(2):  # again: the retry topic is there
        rmqio("groups", group, "--subscribe", q0.topic)
    assert progress() == expected
