"""Results of a stored batch are made for those who take them only."""

from __future__ import annotations

import pytest
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.errors import LocalError
from rmqio.model import Message, MessageQueue, SendResult, SendStatus
from rmqio.transforms.writing.outputs import WriteMetrics, WriteOutputs
from rmqio.wire.batch import BatchResults
from rmqio.wire.ids import MessageIds

QUEUE = MessageQueue("t", "b", 1)
MESSAGES = [Message(b"x")] * 40


def stored(count: int = 40) -> BatchResults:
    return BatchResults(QUEUE, 7, MessageIds().take(count), "", SendStatus.FLUSH_DISK_TIMEOUT)


@pytest.mark.parametrize("with_sent", [False, True])
def test_results_are_made_for_the_output_only(with_sent: bool) -> None:
    outputs = WriteOutputs(WriteMetrics(), with_sent=with_sent)
    outputs.begin_bundle()
    results = stored()
    origins = [WindowedValue(n, 5, (GlobalWindow(),)) for n in range(40)]
    outputs.sent(origins, MESSAGES, results, 0.1)
    assert (results._made is not None) == with_sent
    found = [*outputs.take()]
    assert [each.value for each in found] == ([*results] if with_sent else [])
    assert all(isinstance(each.value, SendResult) and each.timestamp == 5 for each in found)


def test_a_result_too_few_is_noticed_without_looking_at_them() -> None:
    outputs = WriteOutputs(WriteMetrics(), with_sent=False)
    results = stored(39)
    with pytest.raises(LocalError, match="39 results for 40 messages"):
        outputs.sent([], MESSAGES, results, 0.1)
    assert results._made is None
