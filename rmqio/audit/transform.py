"""`Audit`: counts what goes by between two transforms, so that `rmqio audit` can say where messages were lost."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import apache_beam as beam
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.transforms.display import DisplayDataItem
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints import Tuple

from rmqio.audit.audit_fn import SKETCHES_TAG, AddTotalsFn, CountFn, EncodeFn, TotalsFn, id_of_message
from rmqio.audit.sketch import Hop
from rmqio.errors import LocalError
from rmqio.interfaces import ClientFactory
from rmqio.model import Message, Record
from rmqio.options import WriteOptions
from rmqio.security import Security
from rmqio.transforms import WriteToRocketMQ
from rmqio.transforms.parts import is_in_process

_PAIR: Final = Tuple[str, Tuple[int, int, int, int, int]]


class Audit(beam.PTransform):
    """Passes elements on, and counts them in an audit topic by queue, offsets and window of event time.

        records = pipeline | ReadFromRocketMQ("orders", ..., batches=True) | Audit("read", topic="orders-audit")
        parsed = records | MapRecords(parse) | Audit("parsed", topic="orders-audit")

    A sketch has no ids, only a count and a sum of hashes: 0.3 kB for up to 4,096 messages.

    Args:
      hop: the name of this point, unique in the pipeline.
      topic: the audit topic, which must exist. All hops of a pipeline share one.
      id_of: a callable from an element, or a value of a batch, to its id as text, the one that `rmqio audit --by`
        names. None: elements are `Record`s or `Batch`es, which know their places.
      window_s: length of the windows of event time.
      run: names the run. None: a new one, or of a stream the folder of `--checkpoint_dir`, because one that is started
        again with it continues its totals. Flink from a savepoint: give the same name again. A stream that begins anew
        needs another folder, or another name: its totals replace those of the same name. On the DirectRunner, which
        keeps no totals, each start of a stream is a run of its own: a name gets a suffix.
      name_server, security, options, client_factory: for the audit topic, as in `WriteToRocketMQ`.

    Returns: the elements, unchanged. The order is that of the input, as are windows, timestamps and type.

    Delivery: an element counts as often as it went through in what the runner has committed. A bundle's sketch is
    committed with the bundle, and added to a total: in the runner's state, or in a batch job by a combine. The topic's
    last message of a key is its total, whatever an attempt that failed has written before.

    Raises `LocalError` when it is built or applied; while it runs, for an element without a place if `id_of` is None.
    """

    def __init__(
        self,
        hop: str,
        *,
        topic: str,
        id_of: Callable[[Any], str] | None = None,
        window_s: int = 60,
        run: str | None = None,
        name_server: str | tuple[str, ...] | list[str] | None = None,
        security: Security | None = None,
        options: WriteOptions | None = None,
        client_factory: ClientFactory | None = None,
    ) -> None:
        if not isinstance(hop, str) or not hop:
            raise LocalError(f"hop is {hop!r}; it must be text that names this point of the pipeline")
        super().__init__(f"Audit {hop}")
        if id_of is not None and not callable(id_of):
            raise LocalError(f"id_of is {id_of!r}; it must be a callable of an element")
        if not isinstance(window_s, int) or isinstance(window_s, bool) or window_s < 1:
            raise LocalError(f"window_s is {window_s!r}; it must be a whole number of at least 1")
        self.hop, self._topic, self._id_of, self._window_ms, self._run = hop, topic, id_of, window_s * 1000, run
        self._write = WriteToRocketMQ(
            topic,
            name_server=name_server,
            security=security,
            options=options,
            client_factory=client_factory,
            id_fn=id_of_message,
            with_sent=False,
        )
        self.place = Hop(hop, 0, ())
        """Its place in the pipeline, known once it is applied."""

    def expand(self, elements: Any) -> Any:
        element_type = elements.element_type
        if self._id_of is None:
            self._require_places(element_type)
        self.place = self._placed(elements)
        windowing = elements.windowing.windowfn
        counting = beam.ParDo(CountFn(self.hop, self._run_of(elements), self._id_of, self._window_ms, windowing))
        outputs = elements | "Count" >> counting.with_outputs(SKETCHES_TAG, main="passed")
        passed, sketches = outputs["passed"], outputs[SKETCHES_TAG]
        passed.element_type, sketches.element_type = element_type, _PAIR
        pairs, is_stream = sketches, self._is_stream(elements)
        if is_stream or not elements.windowing.is_default():
            pairs = sketches | "All time" >> beam.WindowInto(GlobalWindows()).with_output_types(_PAIR)
        if is_stream:
            messages = pairs | "Total" >> beam.ParDo(TotalsFn(self.place)).with_output_types(Message)
        else:
            # Without state, each value of which Beam weighs for its cache: some milliseconds on the DirectRunner.
            messages = (
                pairs | "Total" >> beam.CombinePerKey(AddTotalsFn()) | "Message" >> beam.ParDo(EncodeFn(self.place))
            )
        _ = messages | "Write" >> self._write
        return passed

    def _is_stream(self, elements: Any) -> bool:
        return not elements.is_bounded or elements.pipeline.options.view_as(StandardOptions).streaming

    def _require_places(self, element_type: Any) -> None:
        """Refuse a type that certainly has no place. Elements of other types are examined one by one."""
        if not isinstance(element_type, type) or issubclass(element_type, (Record, list)) or element_type is object:
            return
        raise LocalError(
            f"Audit({self.hop!r}) cannot tell elements of type {element_type.__name__} apart, because they have no "
            "place in a topic: give id_of=, a function that returns the id of an element as text"
        )

    def _run_of(self, elements: Any) -> str:
        unique, is_stream = uuid.uuid4().hex[:16], self._is_stream(elements)
        if is_stream and is_in_process(elements.pipeline):
            # The runner keeps no state: each start begins its totals anew, but goes on from the group's offsets. Under
            # one name, the totals of the second start would replace those of the first.
            return f"{self._run}-{unique}" if self._run is not None else unique
        if self._run is not None:
            return self._run
        # A batch job begins its totals anew, whatever the folder: under its name, they would replace the last run's.
        folder = elements.pipeline.options.get_all_options().get("checkpoint_dir") if is_stream else None
        return str(folder) if folder else unique

    def _placed(self, elements: Any) -> Hop:
        """Find the hops before this one. Raises `LocalError` for a name that is there already."""
        others = [each for each in _audits_of(elements.pipeline) if each is not self]
        if any(each.hop == self.hop for each in others):
            raise LocalError(f"two Audits are named {self.hop!r}; give each its own name")
        direct = _directly_before(elements)
        depth = 1 + max((each.place.depth for each in direct), default=-1)
        return Hop(self.hop, depth, tuple(sorted({each.hop for each in direct})))

    def display_data(self) -> dict[str, Any]:
        shown = {"hop": self.hop, "topic": self._topic, "id_of": getattr(self._id_of, "__qualname__", None)}
        return {key: DisplayDataItem(value).drop_if_none() for key, value in shown.items()}


def _audits_of(pipeline: Any) -> Iterator[Audit]:
    """Yield the `Audit`s that a pipeline has so far."""
    left = [pipeline.transforms_stack[0]]
    while left:
        applied = left.pop()
        if isinstance(applied.transform, Audit):
            yield applied.transform
        left += applied.parts


def _directly_before(collection: Any) -> list[Audit]:
    """Return those that elements come from with no other between them."""
    found: dict[str, Audit] = {}
    seen: set[Any] = set()
    left = [collection]
    while left:
        current = left.pop()
        producer = getattr(current, "producer", None)
        if producer is None or current in seen:
            continue
        seen.add(current)
        audit = _audit_of(producer)
        if audit is not None:
            found[audit.hop] = audit
        else:
            left += producer.inputs
    return list(found.values())


def _audit_of(applied: Any) -> Audit | None:
    """Return the `Audit` that a transform is a part of."""
    while applied is not None:
        if isinstance(applied.transform, Audit):
            return applied.transform
        applied = applied.parent
    return None
