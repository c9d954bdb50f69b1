"""A compacted topic, described. `rmqio.enrich.live` reads it."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmqio.enrich.sources.base import arrow_type
from rmqio.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from rmqio.interfaces import ClientFactory
    from rmqio.security import Security


@dataclass(frozen=True, slots=True)
class Topic:
    """See `Source`. It is never read as a whole: `LiveTable` keeps it up to date."""

    topic: str
    types: tuple[tuple[str, str], ...]
    deserializer: Any
    on_bad_row: str
    factory: ClientFactory
    place: str
    queues: int | None = None

    @classmethod
    def of(
        cls,
        topic: str,
        name_server: str | Sequence[str] | None,
        types: Mapping[str, str],
        deserializer: Any,
        on_bad_row: str,
        security: Security | None,
        factory: ClientFactory | None,
        queues: int | None = None,
    ) -> Topic:
        """See `Table.from_topic`."""
        if on_bad_row not in ("error", "skip"):
            raise LocalError(f"on_bad_row is {on_bad_row!r}; it must be error or skip")
        if queues is not None and (isinstance(queues, bool) or not isinstance(queues, int) or queues < 1):
            raise LocalError(f"queues is {queues!r}; it must be the number of the topic's queues, or None")
        for name, kind in types.items():
            arrow_type(kind, name)
        if factory is None:
            from rmqio.client.factory import RemotingClientFactory
            from rmqio.options import options_of_cluster

            factory = RemotingClientFactory(options_of_cluster(name_server, security))
            place = repr(name_server) if name_server is not None else repr(os.environ.get("NAMESRV_ADDR"))
        else:
            place = _identity_of(factory)
        return cls(topic, tuple(sorted(types.items())), deserializer, on_bad_row, factory, place, queues)

    @property
    def shown(self) -> str:
        return f"topic {self.topic}"

    def identity(self) -> tuple[object, ...]:
        decoder = None if self.deserializer is None else _identity_of(self.deserializer)
        return "topic", self.topic, self.place, self.types, decoder

    def version(self) -> str | None:
        return None

    def rows(self) -> int | None:
        return None

    def size(self) -> int:
        return 0

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        raise LocalError(f"{self.shown} has no end, so it cannot be read as a whole")


def _identity_of(given: Any) -> str:
    """A text that is the same for the same function or object in all processes, and not for another one."""
    home = given if hasattr(given, "__qualname__") else type(given)
    code = getattr(given, "__code__", None)
    try:
        if code is None:
            content = pickle.dumps(given)
        else:  # without the constants whose text has an address
            constants = [each for each in code.co_consts if isinstance(each, (str, bytes, int, float))]
            content = repr((code.co_code, code.co_names, constants)).encode()
    except Exception:  # noqa: BLE001  a user's object can raise anything
        content = b""
    return f"{home.__module__}.{home.__qualname__}/{hashlib.sha256(content).hexdigest()[:16]}"
