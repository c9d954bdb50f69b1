"""Default ids that are the same when a bundle is run again, for elements for which this is possible.

After a GroupByKey or a combine by key, each firing has a unique combination of key, window and pane number. The hash of
these and the message is the id. These cases are not safe, so they have no default:

- anything in between, e.g. a Map: two keys can give equal messages, and one of them would be dropped as a copy.
- a `Message` with keys: the same key comes with many events.
- the global window of a stream: a stream that starts anew counts its panes anew, and gives new events old ids.
- a key whose coder is not deterministic.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from typing import Any, Final

import apache_beam as beam
from apache_beam import PCollection
from apache_beam.coders import Coder, registry
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints import typehints

from rmqio.model import Message
from rmqio.transforms.coders.values import MessageCoder

_MESSAGE: Final = MessageCoder()


@dataclass(frozen=True)
class DefaultIds:
    """Ids of the firings of one GroupByKey.

    Args:
      label: label of the write, so that two writes of one pipeline have different ids.
      run: identifies the run of a bounded pipeline, which can read other data when it is started again; empty for a
        stream.
      key_coder, window_coder: deterministic coders.
    """

    label: str
    run: str
    key_coder: Coder
    window_coder: Coder

    def id_of(self, element: Any, origin: Any, message: Message, topic: str) -> str:
        """The id of the message for a pair of key and value: 32 upper-case hexadecimal digits, like RocketMQ's ids.

        `origin` is a WindowedValue with the window and pane of the pair.
        """
        pane = origin.pane_info
        windows = sorted(self.window_coder.encode(window) for window in origin.windows)
        parts = [
            self.label.encode(),
            self.run.encode(),
            self.key_coder.encode(element[0]),
            *windows,
            b"%d/%d" % (pane.index, pane.timing),
            topic.encode("utf-8", "surrogatepass"),
            _MESSAGE.encode(message),
        ]
        digest = hashlib.blake2b(digest_size=16)
        for part in parts:
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return digest.hexdigest().upper()


def default_ids(pcoll: PCollection[Any], label: str, *, is_stream: bool) -> DefaultIds | None:
    """The ids for the direct output of a GroupByKey or a combine by key; None if no safe id exists."""
    windowing = pcoll.windowing
    if not _is_grouped(pcoll) or (is_stream and isinstance(windowing.windowfn, GlobalWindows)):
        return None
    element_type = pcoll.element_type
    if not isinstance(element_type, typehints.TupleConstraint) or len(element_type.tuple_types) != 2:
        return None
    try:
        key_coder = registry.get_coder(element_type.tuple_types[0]).as_deterministic_coder(label)
    except ValueError:
        return None
    window_coder = windowing.windowfn.get_window_coder()
    if not window_coder.is_deterministic():
        return None
    return DefaultIds(label, "" if is_stream else uuid.uuid4().hex, key_coder, window_coder)


def _is_grouped(pcoll: PCollection[Any]) -> bool:
    producer = pcoll.producer
    if producer is None:
        return False
    if isinstance(producer.transform, beam.GroupByKey):
        return True
    while producer is not None:
        if isinstance(producer.transform, beam.CombinePerKey):
            return pcoll in producer.outputs.values()
        producer = producer.parent
    return False
