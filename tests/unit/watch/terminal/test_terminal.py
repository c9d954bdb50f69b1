"""The view: it fits 80 columns and more, and the height of the terminal."""

from __future__ import annotations

import io

import pytest

pytest.importorskip("rich", reason="the extra watch")

from rich.console import Console

from rmqio.command_line.cluster import QueueState
from rmqio.command_line.output import display_width
from rmqio.model import MessageQueue
from rmqio.watch.frames import Frame, History, PipelineView, Target
from rmqio.watch.terminal import View

PIPELINE = PipelineView("http://x/metrics", 1_000_000, None, 3.0, 61.0, 1234.5, None, {"decode_failures": 12.0}, 3.0)


def frame(queues: int = 4, *, topic: str = "orders", pipeline: PipelineView | None = PIPELINE) -> Frame:
    history = History(Target((topic,), "billing", ("%DLQ%billing", "failed")), 1)
    places = [MessageQueue(topic, f"broker-{'ab'[number % 2]}", number // 2) for number in range(queues)]
    dead = MessageQueue("failed", "broker-a", 0)
    found = None
    for at in range(40):
        states = [QueueState(q, 0, at * 1_000 * (n + 1), committed=at * 900 * (n + 1)) for n, q in enumerate(places)]
        if at > 35:
            states = [s if s.queue.broker == "broker-a" else QueueState(s.queue, 0, 0, error="silent " * 30)
                      for s in states]  # fmt: skip
        states.append(QueueState(dead, 0, at // 10))
        found = history.frame(
            1_000_000 + at * 1_000, states, pipeline=pipeline, missing=frozenset({"%DLQ%billing"}),
            unread_ms=dict.fromkeys(places, 990_000),
        )  # fmt: skip
    assert found is not None
    return found


def shown(frame: Frame, width: int, height: int = 40, *, fits_height: bool = False) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, highlight=False)
    console.print(View(frame, hint="every 1 s, Ctrl-C ends it", fits_height=fits_height))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100, 132, 200])
def test_no_line_is_cut_or_broken(width: int) -> None:
    lines = shown(frame(), width)
    assert max(map(display_width, lines)) <= width
    (queue,) = [line for line in lines if line.startswith("broker-a:1")]
    assert queue.split()[1] == "11,700"
    assert "█" in queue
    assert any("".join(line.split()).startswith("QUEUELAGLAGSOFARWAITIN/SOUT/SCOMMIT") for line in lines)
    assert any(line.startswith("PIPELINE  reads 1,234/s") and "watermark delay 61s" in line for line in lines)
    assert any("decode_failures 12 (+3 while watching)" in line for line in lines)


@pytest.mark.parametrize(
    ("arrives", "lag", "commits", "forecast"),
    [
        (30, 150, 30.2, None),  # what arrives in the 5 s between two commits
        (30, 250, 33, None),
        (30, 100_000, 33, "empty in 9h"),
        (30, 250, 60, "empty in 8.3s"),
        (0, 250, 1, "empty in 4m"),
    ],
)
def test_a_lag_of_commits_has_no_forecast(arrives: float, lag: int, commits: float, forecast: str | None) -> None:
    history = History(Target(("orders",), "billing", ()), 1)
    for at in range(11):
        end = 1_000_000 + int(arrives * at)
        committed = end - lag + int((commits - arrives) * (at - 10))
        states = [QueueState(MessageQueue("orders", "broker-a", 0), 0, end, committed=committed)]
        found = history.frame(1_000_000 + at * 1_000, states, pipeline=None, missing=frozenset(), unread_ms={})
    (line,) = [line for line in shown(found, 132) if line.startswith("lag ")]
    assert line.partition("empty in")[1:] == (("", "") if forecast is None else ("empty in", forecast[8:]))


def test_a_broker_that_is_away_says_since_when_and_why() -> None:
    lines = shown(frame(), 80)
    (away,) = [line for line in lines if line.startswith("broker-b ")]
    assert "away" in away
    assert "4.0s ago" in away
    assert any(line.startswith("  broker-b: silent") for line in lines)
    assert [line.split()[1] for line in lines if line.startswith("broker-b:")] == ["away", "away"]


def test_dead_letters_and_a_topic_that_is_not_there() -> None:
    lines = shown(frame(), 80)
    assert any(line.split() == ["%DLQ%billing", "none"] for line in lines)
    assert any(line.split()[:3] == ["failed", "3", "+3"] for line in lines)


def test_of_many_queues_those_with_the_largest_lag_stay() -> None:
    lines = shown(frame(60), 80, 30, fits_height=True)
    assert len(lines) <= 30
    assert any(line.startswith("... ") and "queues more, with less lag" in line for line in lines)
    assert any(line.startswith("broker-b:") for line in lines), "those whose broker is away come first"
    assert any(line.startswith("BROKER") for line in lines)


@pytest.mark.parametrize(("width", "height"), [(50, 12), (80, 24), (60, 15), (80, 12), (40, 8)])
@pytest.mark.parametrize("queues", [4, 60])
def test_on_a_small_terminal_what_is_wrong_comes_first(width: int, height: int, queues: int) -> None:
    lines = shown(frame(queues), width, height, fits_height=True)
    assert len(lines) <= height
    assert max(map(display_width, lines)) <= width
    assert lines[0].startswith("rmqio watch: o")
    text = "\n".join(lines)
    for wanted in ("lag ", "oldest waits 49s", "away", "failed", "+3", "watermark delay 61s", "decode_failures 12"):
        assert wanted in text
    rows = [line for line in lines if line.startswith(("broker-a:", "broker-b:"))]
    assert len(rows) >= (4 if height >= 12 else 1)
    assert not any("…" in line for line in rows), "a column is there or not"


def test_what_a_view_of_50_columns_and_12_lines_looks_like() -> None:
    lines = shown(frame(60), 50, 12, fits_height=True)
    clock = lines[0].split()[-1]
    assert [line.rstrip() for line in lines] == [
        f"rmqio watch: orders, group billing        {clock}",
        "lag 6.76M   oldest waits 49s   in 1.83M/s",
        "BROKERS   1 up, broker-b away for 3.0s: silent si…",
        "DEAD LETTERS  failed 3 +3",
        "PIPELINE  read delay 3.0s   watermark delay 61s",
        "ERRORS    decode_failures 12 (+3 while watching)",
        "QUEUE           LAG  WAIT   IN/S  OUT/S COMMIT",
        *(f"broker-b:{n}    away   49s {n * 2_000 + 2_000:,} {n * 1_800 + 1_800:,}   4.0s" for n in range(26, 30)),
        "... 56 queues more",
    ]


def test_brokers_that_are_all_up_and_topics_without_dead_letters_are_short() -> None:
    history = History(Target(("orders",), "billing", ("failed",)), 1)
    queues = [MessageQueue("orders", "broker-a", n) for n in range(9)]
    found = history.frame(1_000_000, [QueueState(queue, 0, 1, committed=1) for queue in queues],
                          pipeline=None, missing=frozenset({"failed"}), unread_ms={})  # fmt: skip
    lines = [line.split() for line in shown(found, 50, 9, fits_height=True)]
    assert lines[2:4] == [["BROKERS", "1", "up"], ["DEAD", "LETTERS", "none"]]


def test_an_exporter_that_is_away() -> None:
    away = PipelineView("http://x/metrics", None, "metrics http://x/metrics: refused", None, None, None, None, {}, 0)
    assert any(line.startswith("PIPELINE away, answered never: metrics") for line in shown(frame(pipeline=away), 80))


def test_names_cannot_control_the_terminal() -> None:
    text = "\n".join(shown(frame(topic="or\x1b[31mders[bold]"), 100))
    assert "\x1b" not in text
    assert "\\x1b[31mders[bold]" in text
