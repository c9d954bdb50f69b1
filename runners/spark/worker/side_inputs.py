"""Side inputs from broadcasts: decoded once a worker process, by window and key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from apache_beam.coders import Coder

from rmqio.runners.spark.beam.private import create_InputStream
from rmqio.runners.spark.model import SideInput


class SideInputData:
    """The encoded elements of a PCollection that is a side input; the value of a broadcast.

    Views of it are made on first use and kept with it, so for as long as the process keeps the broadcast.
    """

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = chunks
        self._views: dict[bool, dict[bytes, Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return SideInputData, (self.chunks,)  # without the views

    def view(self, multimap: bool, coder: Coder) -> dict[bytes, Any]:
        """Elements by encoded window: lists, or for a multimap dicts from encoded key to (key, values)."""
        if multimap not in self._views:
            self._views[multimap] = (_by_key if multimap else _by_window)(self.chunks, coder)
        return self._views[multimap]


class SideInputs:
    """The side inputs of a stage, as Beam's state API asks for them."""

    def __init__(self, specs: Iterable[SideInput], data: Mapping[str, Any], coder_of: Callable[[str], Coder]) -> None:
        """Args: specs of the stage's side inputs; broadcasts by name; what finds a coder by its id."""
        self._specs = {(spec.transform_id, spec.tag): spec for spec in specs}
        self._data = data
        self._coder_of = coder_of

    def get(self, kind: str, key: Any) -> Any:
        """The values that answer a request of one of Beam's four kinds; `key` is that kind's part of the state key."""
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


def _elements(chunks: Iterable[bytes], coder: Coder) -> Iterable[Any]:
    impl = coder.get_impl()
    for chunk in chunks:
        stream = create_InputStream(chunk)
        while stream.size() > 0:
            yield impl.decode_from_stream(stream, True)


def _by_window(chunks: Iterable[bytes], coder: Any) -> dict[bytes, Any]:
    encode = coder.window_coder.encode
    found: dict[Any, list[Any]] = {}
    for element in _elements(chunks, coder):
        for window in element.windows:
            found.setdefault(window, []).append(element.value)
    return {encode(window): values for window, values in found.items()}


def _by_key(chunks: Iterable[bytes], coder: Any) -> dict[bytes, Any]:
    encode = coder.window_coder.encode
    encode_key = coder.wrapped_value_coder.key_coder().get_impl().encode_nested
    found: dict[Any, dict[bytes, tuple[Any, list[Any]]]] = {}
    for element in _elements(chunks, coder):
        key, value = element.value
        encoded = encode_key(key)
        for window in element.windows:
            found.setdefault(window, {}).setdefault(encoded, (key, []))[1].append(value)
    return {encode(window): keys for window, keys in found.items()}
