"""`DropDuplicates`: emits messages once that an at-least-once writer has stored twice."""

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
    """Drops records whose unique id has already come in their topic within a given event time.

    `WriteToRocketMQ` sends a message again with the id of the first try. Between a write and a read with rmqio,
    delivery at least once therefore becomes effectively once. Java's producers do the same for their own retries.

    Args:
      within_ms: how far apart in event time (milliseconds) two records can be to count as one message. An id is
        remembered until the watermark has passed its first record by this time. Choose the longest time that a writer
        can take to repeat itself, including outages of the writer.
      id_of: a callable from the record to its id: text, not empty. None: the unique id from the producer (UNIQ_KEY). A
        record without one is identified by topic, broker, queue id and offset, so that only the same record read twice
        is a duplicate. (Its `message_id` cannot identify it: the records of one batch may share it.)

    Time is event time. It therefore does not matter how fast a backlog is read, or how long a pipeline was down. In a
    batch job, event time does not advance, so all copies are dropped, however far apart. A record that is later than
    the watermark by more than `within_ms` may pass again.

    The runner's state has one flag and one timer per id and topic, for all ids that come within `within_ms`, and for as
    long as a queue that is behind holds back the watermark.

    Elements are `Record`s; their order is not kept. Records in different windows are not duplicates of each other.
    The transform needs a shuffle, so the Direct runner refuses it after a read without end. Dropped records are counted
    (`duplicates_dropped`). Raises `LocalError` when it is built.
    """

    def __init__(self, *, within_ms: int = 600_000, id_of: Callable[[Record], str] | None = None) -> None:
        super().__init__()
        if not isinstance(within_ms, int) or isinstance(within_ms, bool) or within_ms < 1:
            raise LocalError(f"within_ms is {within_ms!r}; it must be a whole number of at least 1")
        if id_of is not None and not callable(id_of):
            raise LocalError(f"id_of is {id_of!r}; it must be a callable of the record")
        self.within_ms = within_ms
        self.id_of = id_of

    def expand(self, records: Any) -> Any:
        if not records.is_bounded and is_in_process(records.pipeline):
            raise LocalError(
                "DropDuplicates after a read without end: the Direct runner fires its timers immediately, so copies "
                "would pass. Give the read a stop (--stop latest), or use --runner=SparkRunner --streaming or "
                "--runner=FlinkRunner"
            )
        by_id = records | "By id" >> beam.ParDo(_ByIdFn(self.id_of)).with_output_types(Tuple[bytes, Record])
        return by_id | "First of each id" >> beam.ParDo(_FirstFn(self.within_ms)).with_output_types(Record)


class _ByIdFn(beam.DoFn):
    """Keys are bytes: an id need not be UTF-8. The byte after the topic tells two kinds apart; no topic contains it."""

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
            raise SerdeError(f"{where}: id_of returned {found!r}; it must return text that is not empty")
        return ((f"{element.topic}\x00{found}".encode("utf-8", "surrogatepass"), element),)


class _FirstFn(beam.DoFn):
    """Passes the first record of a key, and forgets it when the watermark has passed it by `within_ms`.

    Beam's `DeduplicatePerKey` is not used: it also declares a processing-time timer, for which a stream on Flink that
    ends would wait forever.
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
