"""Provinces of addresses: reads `{id, address}`, writes `{id, province}`. The job of RocketMQ's Flink connector.

python pipelines/province.py --name_server=127.0.0.1:9876 --source_topic=addresses --sink_topic=provinces
"""

from __future__ import annotations

if __name__ == "__main__":  # before Beam, whose import takes seconds, and logs a warning if rmqio is not there
    import sys

    from rmqio.pipelines.common import arguments

    arguments.read(sys.argv[1:])

import collections
import logging
import operator
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.transforms.error_handling import ErrorHandler

from rmqio.audit import Audit
from rmqio.batches import Batch
from rmqio.dead_letters.letters import letter_id
from rmqio.errors import NoPermission, RmqioError, SerdeError, TopicNotExist, counted
from rmqio.interfaces import ClientFactory
from rmqio.model import Message, Record
from rmqio.pipelines.common.arguments import ProvinceOptions, parse
from rmqio.pipelines.common.provinces import province_of
from rmqio.repeats import LookBack
from rmqio.runners.program import count, run_program
from rmqio.sending.batches import FailedMessage
from rmqio.serde import JsonDeserializer, JsonSerializer
from rmqio.transforms import ReadFailure, ReadFromRocketMQ, WriteToRocketMQ
from rmqio.transforms.failures import dead_letter, failure_of_record

_LOGGER = logging.getLogger(__name__)

_BAD: Final = "bad"
_PARSE: Final = JsonDeserializer()
_FORMAT: Final = JsonSerializer(key_fields=("id",))

Province = tuple[str, dict[str, Any]]
"""The unique id of the source message, and `{"id": ..., "province": ...}`."""


class BadAddress(SerdeError):
    """Input without a usable province. `kind` is one of a few fixed texts, used for counting."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(kind, detail)
        self.kind, self.detail = kind, detail

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


def take_province(record: Record) -> Province:
    """Return the province of one address. Raises `BadAddress`."""
    try:
        found = _PARSE(record)
    except SerdeError as error:
        raise BadAddress("not JSON", str(error)) from error
    if not isinstance(found, dict):
        raise BadAddress("not an object", f"the JSON is of type {type(found).__name__}")
    number = found.get("id")
    if isinstance(number, bool) or not isinstance(number, (int, str)) or str(number).split() != [str(number)]:
        raise BadAddress("no id", "it must be a whole number, or text without white space")
    address = found.get("address")
    if not isinstance(address, str):
        raise BadAddress("no address", "it must be text")
    province = province_of(address)
    if province is None:
        raise BadAddress("no province", "the address does not begin with one")
    return record.message_id, {"id": number, "province": province}


def to_message(province: Province) -> Message:
    """Return the message for the sink: JSON, with the id as its key too."""
    return _FORMAT(province[1])


class TakeProvinces(beam.DoFn):
    """Applies `take_province` to each record of a batch; bad ones are counted and go to the output "bad".

    It is `MapRecords` with counters of its own, and emits bad records as `ReadFailure`.
    """

    def __init__(self) -> None:
        self._addresses = Metrics.counter("province", "addresses")
        self._bad = Metrics.counter("province", "bad")

    def start_bundle(self) -> None:
        self._kinds: collections.Counter[str] = collections.Counter()

    def process(self, element: Batch[Record]) -> Iterator[Any]:
        self._addresses.inc(len(element))
        provinces, positions = [], []
        for position, record in enumerate(element):
            try:
                provinces.append(take_province(record))
                positions.append(position)
            except BadAddress as error:
                self._bad.inc()
                self._kinds[error.kind] += 1
                yield beam.pvalue.TaggedOutput(_BAD, failure_of_record(record, error))
        if provinces:
            yield element.with_values(provinces, positions)

    def finish_bundle(self) -> None:
        # One line per bundle: a topic full of bad input must not fill the disk with logs.
        if self._kinds:
            _LOGGER.warning("bad input: %s", ", ".join(f"{n} {kind}" for kind, n in self._kinds.most_common()))


def build(pipeline: beam.Pipeline, options: ProvinceOptions, *, client_factory: ClientFactory | None = None) -> None:
    """Wire the job. `client_factory` replaces the clients in tests. Raises `LocalError` for bad options."""
    at: dict[str, Any] = {"name_server": options.name_server, "security": options.security}
    if client_factory:
        at = {"client_factory": client_factory}
    read = ReadFromRocketMQ(
        options.source_topic,
        consumer_group=options.consumer_group,
        start=options.start,
        stop=options.stop,
        dead_letter_topic=options.dead_letter_topic,
        batches=True,
        **at,
    )
    if options.dead_letter_topic is not None:
        records = pipeline | "Read addresses" >> read
    else:
        with ErrorHandler("Leave out" >> beam.Map(leave_out)) as corrupt:
            records = pipeline | "Read addresses" >> read.with_error_handler(corrupt)
    if options.audit_topic is not None:
        records |= Audit("read", topic=options.audit_topic, **at)
    taken = records | "Take the province" >> beam.ParDo(TakeProvinces()).with_outputs(_BAD, main="provinces")
    provinces, bad = taken["provinces"], taken[_BAD]
    provinces.element_type, bad.element_type = Batch, ReadFailure
    if options.audit_topic is not None:
        provinces |= Audit("provinces", topic=options.audit_topic, **at)
    to: dict[str, Any] = {"with_sent": False, **at}
    if options.exactly_once is not None:
        to["exactly_once"] = LookBack(options.exactly_once)
    written = provinces | "Write provinces" >> WriteToRocketMQ(
        options.sink_topic, serializer=to_message, id_fn=operator.itemgetter(0), batches=True, **to
    )
    _ = written.failed | "Provinces refused" >> beam.Map(refuse)
    # Bad records have their own branch, not one shared with the read's failures: in-process, Beam runs the steps after
    # a Flatten only when the read has ended, and an endless read never ends.
    if options.dead_letter_topic is not None:
        letters = bad | "To dead letters" >> beam.Map(dead_letter).with_output_types(Message)
        written = letters | "Write dead letters" >> WriteToRocketMQ(options.dead_letter_topic, id_fn=letter_id, **to)
        _ = written.failed | "Dead letters refused" >> beam.Map(refuse_topic)


def leave_out(failure: ReadFailure) -> None:
    """Log a stored message that is corrupt; the read counts it."""
    _LOGGER.warning("left out %s/%s/%s, offset %s: %s", *failure[:4], failure.error)


def refuse(failed: FailedMessage) -> None:
    """Fail the pipeline, which would otherwise commit offsets of addresses whose province was never written."""
    raise RmqioError(f"cannot write to topic {failed.topic!r}: {failed.error}: {failed.reason}")


def refuse_topic(failed: FailedMessage) -> None:
    """Like `refuse`, but only if the topic is at fault; a dead letter that is too large is left out and logged."""
    if failed.error in (TopicNotExist.__name__, NoPermission.__name__):
        refuse(failed)


def summary(result: Any, options: ProvinceOptions) -> str:
    """Summarize a finished run in one line, from its metrics."""
    broken = count(result, "decode_failures")
    bad = count(result, "bad") + broken
    went = f"went to {options.dead_letter_topic}" if options.dead_letter_topic else "left out"
    read = counted(count(result, "addresses") + broken, "address")
    written = counted(count(result, "messages_sent", step="Write provinces"), "province")
    more = f" ({went})" if bad else ""
    return f"{read} read from {options.source_topic}, {written} written to {options.sink_topic}, {bad} bad{more}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job of a command line and return the exit status."""
    arguments = parse(sys.argv[1:] if argv is None else argv)
    return run_program(
        "province.py",
        arguments.beam,
        lambda pipeline: build(pipeline, arguments.province),
        lambda result: summary(result, arguments.province),
        security=arguments.province.security,
        verbose=arguments.verbose,
    )


if __name__ == "__main__":
    # Import it under its own name, so that other processes can find the functions sent to them.
    from rmqio.pipelines import province

    sys.exit(province.main())
