"""Whether what looks lost is lost or in doubt: the table of docs/operate/audit.md, row by row, with exact figures."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

import pytest

from rmqio.audit.checking import Request, Result, audit
from rmqio.audit.sketch import Hop, Key, Sketch, Total, encode, mixed_one
from rmqio.batches import place_ids
from rmqio.errors import LocalError
from rmqio.model import MessageQueue
from rmqio.start import StartFrom, StopAt
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.unit.audit.support import send
from tests.unit.audit.test_audit_live import Live

SENT: Final = 12
LOST: Final = 7
DOUBLED: Final = 9
UNKNOWN: Final = "which are not known here"
MINUTE: Final = 60_000


def fill(
    cluster: InMemoryCluster,
    labels: Mapping[int, str],
    *,
    others: int,
    deleted: int = 0,
    counted: Mapping[int, str] | None = None,
) -> None:
    """Fill both topics, and the one of the sketches of an Audit that is before what loses and doubles.

    Args:
      labels: by offset: the label of the MapRecords that wrote it; one that is not there was not written.
      others: messages of other writers in the second topic.
      deleted: messages of the first topic that retention has deleted.
      counted: by offset: the label at the Audit; None: there is no further one behind it.
    """
    counted = labels if counted is None else counted
    cluster.create_topic("hops", 1)
    sources = [send(cluster, "source", n, ms=n * MINUTE) for n in range(SENT)]
    queue: MessageQueue = sources[0].queue
    for offset, label in labels.items():
        (id_,) = place_ids(queue, (offset,), label)
        for _ in range(2 if offset == DOUBLED else 1):
            send(cluster, "sink", offset, ms=offset * MINUTE + 10, properties={"UNIQ_KEY": id_})
    for number in range(others):
        send(cluster, "sink", 100 + number, ms=number * MINUTE)
    for label in {*counted.values()}:
        offsets = [offset for offset in range(SENT) if counted.get(offset, label) == label]
        key, hop = Key("run", "parsed", *queue, 0, 0, label), Hop("parsed", 0, ())
        total = Total(len(offsets), sum(map(mixed_one, offsets)) & ((1 << 64) - 1), 0, 0, 0)
        cluster.append("hops", encode(Sketch(key, hop, total)))
    if deleted:
        cluster.delete_before(queue, deleted)


def found(cluster: InMemoryCluster, **more: Any) -> Result:
    with contextlib.closing(InMemoryClientFactory(cluster.name).queue_client()) as client:
        return audit(client, Request("source", "sink", **{"by": "place", **more}))


def all_but(lost: int, label: str = "/Parse", other: str | None = None) -> dict[int, str]:
    labels = {offset: label for offset in range(SENT) if offset != lost}
    return labels if other is None else {n: each if n % 2 else other for n, each in labels.items()}


STEPS: Final = {"steps": ("/Parse",)}
HOPS: Final = {"audit_topic": "hops"}
FROM: Final = {"start": StartFrom.timestamp(1_000_000 + 4 * MINUTE)}
TO: Final = {"stop": StopAt.timestamp(1_000_000 + 10 * MINUTE)}
PLAIN: Final = all_but(LOST, "")
PARSED: Final = all_but(LOST)
HALF: Final = all_but(LOST, "/Parse", "")
BOTH: Final = {"steps": ("", "/Parse")}
BEHIND: Final = all_but(LOST, "/Parse", "/Parse/2")
TOLD: Final = (
    r"^1 message of source would count as lost, but 5 messages of sink cannot be told to be one there by place: the "
    "last Audit has the labels %s, but .* give all labels as --steps"
)
FOREIGN_6: Final = (
    r"^%d messages? of source would count as lost, but 6 messages .* the last Audit has the labels '%s', but "
)


@pytest.mark.parametrize(
    ("labels", "topics", "request_", "expected"),
    [
        pytest.param(PLAIN, {"others": 0}, {}, (12, 1, 1), id="nothing is unexplained"),
        pytest.param(PLAIN, {"others": 5}, {}, UNKNOWN, id="other writers, no labels given"),
        pytest.param(PLAIN, {"others": 5}, {"steps": ("",)}, (12, 1, 1), id="other writers, it has no labels"),
        pytest.param(PARSED, {"others": 5}, STEPS, (12, 1, 1), id="other writers, steps"),
        pytest.param(PARSED, {"others": 5}, {**STEPS, "by": "auto"}, (12, 1, 1), id="other writers, steps, auto"),
        pytest.param(PARSED, {"others": 5}, HOPS, TOLD % "'/Parse'", id="other writers, audit topic"),
        pytest.param(PARSED, {"others": 5}, {**HOPS, **STEPS}, (12, 1, 1), id="other writers, audit topic, steps"),
        pytest.param(HALF, {"others": 5}, HOPS, TOLD % "'' and '/Parse'", id="other writers, audit topic, two labels"),
        pytest.param(HALF, {"others": 5}, {**HOPS, **BOTH}, (12, 1, 1), id="the same, steps"),
        pytest.param(HALF, {"others": 0}, HOPS, (12, 1, 1), id="audit topic with two labels"),
        pytest.param(HALF, {"others": 0, "counted": PLAIN}, HOPS, FOREIGN_6 % (6, ""), id="a label behind the Audit"),
        pytest.param(
            HALF, {"others": 5, "counted": PLAIN}, {**HOPS, **STEPS}, (12, 1, 1), id="a label behind the Audit, steps"
        ),
        pytest.param(
            BEHIND, {"others": 0, "counted": PARSED}, HOPS, FOREIGN_6 % (7, "/Parse"), id="two labels, one behind"
        ),
        pytest.param(HALF, {"others": 5, "counted": {}}, HOPS, UNKNOWN, id="no sketches"),
        pytest.param(
            PARSED, {"others": 5}, {"steps": ("/Parse", "/Prase")}, "label '/Prase' of --steps", id="a misspelt step"
        ),
        pytest.param(PARSED, {"others": 5}, {**STEPS, "most_rows": 4}, (12, 1, 1), id="in files, steps"),
        pytest.param(HALF, {"others": 5}, {**HOPS, "most_rows": 4}, "give more memory", id="in files, two labels"),
        pytest.param({}, {"others": 5}, {"by": "keys"}, (12, 12, 0), id="total loss by keys"),
        pytest.param({}, {"others": 5}, {"by": "field:order.id"}, (12, 12, 0), id="total loss by a field"),
        pytest.param({}, {"others": 5}, {"by": "id"}, (12, 12, 0), id="total loss by id"),
        pytest.param({}, {"others": 0}, {}, (12, 12, 0), id="total loss by place"),
        pytest.param({}, {"others": 5}, STEPS, "nothing has arrived by the label '/Parse'", id="total loss, steps"),
        pytest.param(HALF, {"others": 0}, FROM, UNKNOWN, id="from a time, one label is unknown"),
        pytest.param(HALF, {"others": 0, "deleted": 4}, {}, UNKNOWN, id="retention, one label is unknown"),
        pytest.param(PLAIN, {"others": 0}, FROM, (8, 1, 1), id="from a time"),
        pytest.param(PLAIN, {"others": 0}, {**FROM, **TO}, (6, 1, 1), id="from and to a time"),
        pytest.param(PLAIN, {"others": 0, "deleted": 4}, {}, (8, 1, 1), id="retention"),
        pytest.param(
            HALF, {"others": 5, "deleted": 4}, {**HOPS, **BOTH}, (8, 1, 1), id="retention, other writers, steps"
        ),
        pytest.param(PARSED, {"others": 5}, {**FROM, **STEPS}, (8, 1, 1), id="from a time, other writers, steps"),
    ],
)
def test_what_looks_lost_is_counted_or_refused(
    labels: dict[int, str],
    topics: dict[str, Any],
    request_: dict[str, Any],
    expected: tuple[int, int, int] | str,
    cluster: InMemoryCluster,
) -> None:
    fill(cluster, labels, **topics)
    if isinstance(expected, str):
        with pytest.raises(LocalError, match=expected):
            found(cluster, **request_)
        return
    total = found(cluster, **request_).findings.total
    assert (total.sent, total.lost, total.doubled) == expected


@pytest.mark.parametrize(
    ("labels", "others", "words", "lost", "is_told"),
    [
        pytest.param(("", "/Parse"), 0, (), 4, True, id="a label is unknown"),
        pytest.param(("", "/Parse"), 0, ("--steps=/Parse",), 0, False, id="a label is given"),
        pytest.param(("", None), 0, (), 4, False, id="losses"),
        pytest.param(("", None), 1, (), 4, True, id="losses, other writers"),
        pytest.param(("", None), 1, ("--steps=",), 4, False, id="losses, other writers, it has no labels"),
    ],
)
def test_live_when_it_has_forgotten(
    labels: tuple[str | None, ...],
    others: int,
    words: tuple[str, ...],
    lost: int,
    is_told: bool,
    cluster: InMemoryCluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last looks watch no message any more. A copy of a message that is forgotten is of no other label."""

    def put(live: Live) -> None:
        for label in labels:
            source = live.put("source", 1)
            if label is not None:
                (id_,) = place_ids(source.queue, (source.queue_offset,), label)
                live.put("sink", 1, properties={"UNIQ_KEY": id_})
        for _ in range(others):
            live.put("sink", 1)

    def copy_first(live: Live) -> None:
        (id_,) = place_ids(cluster.records("source")[0].queue, (0,))
        live.put("sink", 1, properties={"UNIQ_KEY": id_})

    live = Live(cluster, monkeypatch, put, put, put, put, copy_first, *[lambda live: None] * 3)
    lines = live.lines(capsys, "--by=place", "--late=10s", "--grace=10s", "--keep=250s", *words)
    assert lines[-1].startswith(f"sent 8  lost {lost}  doubled 0  ")
    assert {"another label" in line for line in lines[3:]} == {is_told}
