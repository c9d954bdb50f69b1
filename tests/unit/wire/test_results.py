"""The results of a batch: a list that is made when somebody looks."""

from __future__ import annotations

import copy
import pickle
from unittest import mock

import pytest

from rmqio.model import MessageQueue, SendResult, SendStatus
from rmqio.wire import batch
from rmqio.wire.batch import BatchResults, common_queue, send_results, weak_count
from rmqio.wire.ids import ConsecutiveIds

QUEUE = MessageQueue("orders", "b", 3)


def made(offset_ids: str = "A,B", status: SendStatus = SendStatus.OK, **more: object) -> BatchResults:
    return BatchResults(QUEUE, 7, ["a", "b"], offset_ids, status, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("offset_ids", "is_inner", "expected"),
    [
        pytest.param("A,B", False, ["A", "B"], id="one each"),
        pytest.param("A,B,C", False, ["A", "B"], id="more than messages"),
        pytest.param("A", False, ["A", ""], id="fewer: all messages are stored all the same"),
        pytest.param("", False, ["", ""], id="none"),
        pytest.param("A", True, ["A", "A"], id="one record"),
        pytest.param("", True, ["", ""], id="one record without an id"),
    ],
)
def test_there_is_one_result_per_message(offset_ids: str, is_inner: bool, expected: list[str]) -> None:
    assert made(offset_ids, is_inner=is_inner) == [
        SendResult(QUEUE, 7, "a", expected[0]),
        SendResult(QUEUE, 8, "b", expected[1]),
    ]


def test_it_is_a_sequence_as_a_list_is() -> None:
    found, as_list = made(), made().all()
    assert [*found] == as_list
    assert (len(found), found[0], found[-1], found[1:]) == (2, as_list[0], as_list[1], as_list[1:])
    assert as_list[1] in found
    assert found.index(as_list[1]) == 1
    assert found == made()
    assert found != made(status=SendStatus.FLUSH_DISK_TIMEOUT)
    assert found != as_list[:1]
    assert found != 5
    assert repr(found) == repr(as_list)
    assert pickle.loads(pickle.dumps(found)) == copy.copy(found) == as_list
    with pytest.raises(IndexError):
        found[2]
    with pytest.raises(TypeError):
        hash(found)


def test_nothing_is_made_before_somebody_looks_and_then_once() -> None:
    with mock.patch.object(batch, "send_results", wraps=send_results) as make:
        found = made()
        assert (len(found), weak_count(found), common_queue(found)) == (2, 0, QUEUE)
        assert make.call_count == 0
        assert found[0] is found[0]
        assert make.call_count == 1


def test_ids_that_count_up_are_written_into_the_results() -> None:
    ids = ConsecutiveIds("AB" * 10, 255, 2)
    assert [each.message_id[-4:] for each in BatchResults(QUEUE, 0, ids, "", SendStatus.OK)] == ["00FF", "0100"]


def test_the_handle_of_a_recall_is_in_the_result() -> None:
    assert [each.recall_handle for each in made(recall_handle="h")] == ["h", "h"]


@pytest.mark.parametrize("status", list(SendStatus))
def test_weak_acknowledgements_are_counted_in_both_forms(status: SendStatus) -> None:
    found = made(status=status)
    assert weak_count(found) == weak_count(found.all()) == (0 if status is SendStatus.OK else 2)
    assert common_queue(found) == common_queue(found.all()) == QUEUE
