"""`DropDuplicates`: what an at-least-once writer has stored twice comes out once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.coders import BooleanCoder
from apache_beam.transforms.userstate import BagStateSpec, TimeDomain, TimerSpec, on_timer
from apache_beam.typehints import Tuple
from apache_beam.utils.timestamp import Duration

from rmqio.errors import LocalError, SerdeError
from rmqio.model import UNIQ_KEY, Record
from rmqio.transforms.metrics import Count, observe_process
from rmqio.transforms.reading.in_process import is_in_process


class DropDuplicates(beam.PTransform):
    """Drop records whose unique id came before in their topic, within some event time.

    `WriteToRocketMQ` gives a message that it sends again the id of the first try, so between two rmqio ends this makes
    at least once effectively once. Java's producers do the same for their own retries.

    Args:
      within_ms: how far apart in event time (milliseconds) two records may be to count as one message. An id is
        remembered until the watermark is so far behind its first record: choose as long as a writer may take to repeat
        itself, outages of the writer included.
      id_of: gives the id of a record: text, not empty. None: the unique id that its producer gave it (UNIQ_KEY); a
        record without one is known by topic, broker, queue id and offset, so that only a second reading of it is a
        duplicate. (`message_id` is no id of such a record: those of one batch may share it.)

    Time is event time, so that it makes no difference how fast a backlog is read, or how long a pipeline was down. It
    stands still in a batch job, which thereby drops all copies, however far apart. A record that comes later than the
    watermark by more than `within_ms` may pass again.

    State is one flag and one timer per id and topic, in the runner's state: as many as come within `within_ms`, and for
    as long as a queue that is behind holds the watermark.

    Elements are `Record`s; order is not kept. Records in different windows are no duplicates of each other. It needs a
    shuffle, so the Direct runner refuses it behind a read without end. What is dropped is counted
    (`duplicates_dropped`). Raises `LocalError` when it is built.
    """

    def __init__(self, *, within_ms: int = 600_000, id_of: Callable[[Record], str] | None = None) -> None:
        super().__init__()
        if not isinstance(within_ms, int) or isinstance(within_ms, bool) or within_ms < 1:
            raise LocalError(f"within_ms is {within_ms!r}; it must be a whole number of at least 1")
        if id_of is not None and not callable(id_of):
            raise LocalError(f"id_of is {id_of!r}; it must be a callable of the record")
        self.within_ms = within_ms
        self._id_of = id_of

    def expand(self, records: Any) -> Any:
        if not records.is_bounded and is_in_process(records.pipeline):
            raise LocalError(
                "DropDuplicates behind a read without end: the Direct runner fires its timers at once, so that copies "
                "would pass. Give the read a stop, or take --runner=SparkRunner --streaming or --runner=FlinkRunner"
            )
        by_id = records | "By id" >> beam.ParDo(_ByIdFn(self._id_of)).with_output_types(Tuple[bytes, Record])
        return by_id | "First of each id" >> beam.ParDo(_FirstFn(self.within_ms)).with_output_types(Record)


class _ByIdFn(beam.DoFn):
    """Keys are bytes: an id need not be UTF-8. The byte behind the topic, which no topic has, tells two kinds apart."""

    def __init__(self, id_of: Callable[[Record], str] | None) -> None:
        self._id_of = id_of

    def process(self, element: Record) -> Sequence[tuple[bytes, Record]]:
        if self._id_of is None:
            found = element.get_property(UNIQ_KEY)
            if not found:
                place = f"{element.topic}\x01{element.broker}\x01{element.queue_id}\x01{element.queue_offset}"
                return ((place.encode("utf-8", "surrogatepass"), element),)
        else:
            found = self._id_of(element)
        if not isinstance(found, str) or not found:
            where = f"{element.queue}, offset {element.queue_offset}"
            raise SerdeError(f"{where}: id_of gave {found!r}; it must give text that is not empty")
        return ((f"{element.topic}\x00{found}".encode("utf-8", "surrogatepass"), element),)


class _FirstFn(beam.DoFn):
    """Passes the first record of a key, and forgets it when the watermark is `within_ms` behind it.

    Not Beam's `DeduplicatePerKey`: that declares a timer of the clock, too, which a stream on Flink that ends would
    wait for without end.
    """

    SEEN = BagStateSpec("seen", BooleanCoder())
    FORGET = TimerSpec("forget", TimeDomain.WATERMARK)

    def __init__(self, within_ms: int) -> None:
        self._within_ms = within_ms
        self._dropped = Count("duplicates_dropped")

    def setup(self) -> None:
        observe_process()

    def process(
        self,
        element: tuple[bytes, Record],
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
        seen: Any = beam.DoFn.StateParam(SEEN),
        forget: Any = beam.DoFn.TimerParam(FORGET),
    ) -> Sequence[Record]:
        if any(seen.read()):
            self._dropped.add(1, (element[1].topic,))
            return ()
        seen.add(True)
        forget.set(min(timestamp + Duration(micros=self._within_ms * 1000), window.max_timestamp()))
        return (element[1],)

    @on_timer(FORGET)
    def forget(self, seen: Any = beam.DoFn.StateParam(SEEN)) -> None:
        seen.clear()
