"""Reads side inputs from broadcasts. Each worker process decodes a side input once, by window and key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from apache_beam.coders import Coder

from rmqio.runners.spark.beam.private import create_InputStream
from rmqio.runners.spark.model import SideInput

if TYPE_CHECKING:
    from apache_beam.transforms.window import BoundedWindow
    from apache_beam.utils.windowed_value import WindowedValue

    from rmqio.runners.spark.beam.private import beam_fn_api_pb2


class SideInputData:
    """The encoded elements of a PCollection that is a side input. This is the value of a broadcast.

    Views are made on first use. They are kept here, so they live as long as the process keeps the broadcast.
    """

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = chunks
        self._views: dict[bool, dict[bytes, Any]] = {}

    def __reduce__(self) -> tuple[type[SideInputData], tuple[list[bytes]]]:
        return SideInputData, (self.chunks,)  # without the views

    def view(self, multimap: bool, coder: Coder) -> dict[bytes, Any]:
        """Returns elements by encoded window: lists or, for a multimap, dicts from encoded key to (key, values)."""
        if multimap not in self._views:
            self._views[multimap] = _by_key(self.chunks, coder) if multimap else _by_window(self.chunks, coder)
        return self._views[multimap]


class SideInputBroadcast(Protocol):
    """Holds the elements of a side input: a broadcast of Spark, or what a stream keeps in its place."""

    @property
    def value(self) -> SideInputData: ...


class SideInputs:
    """Answers the requests of Beam's state API for the side inputs of a stage."""

    def __init__(
        self, specs: Iterable[SideInput], data: Mapping[str, SideInputBroadcast], coder_of: Callable[[str], Coder]
    ) -> None:
        """Args: the stage's side inputs; broadcasts by name; a function that finds a coder by its id."""
        self._specs = {(spec.transform_id, spec.tag): spec for spec in specs}
        self._data = data
        self._coder_of = coder_of

    def get(
        self, kind: str, key: beam_fn_api_pb2.StateKey.IterableSideInput | beam_fn_api_pb2.StateKey.MultimapSideInput
    ) -> Iterator[object]:
        """Returns the values for a request of one of Beam's four kinds. `key`: that kind's part of the state key."""
        spec = self._specs[key.transform_id, key.side_input_id]
        view = self._data[spec.name].value.view(spec.multimap, self._coder_of(spec.coder_id))
        of_window = view.get(key.window)
        if of_window is None:
            return iter(())
        if kind == "iterable_side_input":
            return iter(of_window)
        if kind == "multimap_side_input":
            found = of_window.get(key.key)
            return iter(()) if found is None else iter(found[1])
        if kind == "multimap_keys_side_input":
            return (each for each, _ in of_window.values())
        return iter(of_window.values())


def _elements(chunks: Iterable[bytes], coder: Coder) -> Iterator[WindowedValue]:
    impl = coder.get_impl()
    for chunk in chunks:
        stream = create_InputStream(chunk)
        while stream.size() > 0:
            yield impl.decode_from_stream(stream, True)


def _by_window(chunks: Iterable[bytes], coder: Coder) -> dict[bytes, list[object]]:
    encode = coder.window_coder.encode
    found: dict[BoundedWindow, list[object]] = {}
    for element in _elements(chunks, coder):
        for window in element.windows:
            found.setdefault(window, []).append(element.value)
    return {encode(window): values for window, values in found.items()}


def _by_key(chunks: Iterable[bytes], coder: Coder) -> dict[bytes, dict[bytes, tuple[object, list[object]]]]:
    encode = coder.window_coder.encode
    encode_key = coder.wrapped_value_coder.key_coder().get_impl().encode_nested
    found: dict[BoundedWindow, dict[bytes, tuple[object, list[object]]]] = {}
    for element in _elements(chunks, coder):
        key, value = element.value
        encoded = encode_key(key)
        for window in element.windows:
            found.setdefault(window, {}).setdefault(encoded, (key, []))[1].append(value)
    return {encode(window): keys for window, keys in found.items()}
