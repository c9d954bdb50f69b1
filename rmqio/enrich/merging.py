"""From elements and rows to enriched elements: dicts, `beam.Row`s, NamedTuples, and bodies of JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rmqio.enrich.table.names import nearest
from rmqio.errors import SerdeError
from rmqio.serde.json_objects import object_of


class Clash(SerdeError):
    """An element has a field with the name of a column."""


def fields_of(element: Any) -> Any:
    """Returns the element, or what its body of JSON says. Raises `SerdeError`."""
    body = element
    if not isinstance(element, (bytes, bytearray)):
        body = getattr(element, "body", None)  # a Record or a Message
        if not isinstance(body, bytes) or not hasattr(element, "properties"):
            return element
    return object_of(body, exact=True)  # its numbers go on


class KeyOf:
    """The function from an element to its key: a value, or a tuple of several."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = tuple(fields)

    def __call__(self, element: Any) -> Any:
        if isinstance(element, dict):
            found = [element.get(name) for name in self._fields]
        else:
            try:
                found = [getattr(element, name) for name in self._fields]
            except AttributeError as error:
                raise self._without(element) from error
        return found[0] if len(found) == 1 else tuple(found)

    def _without(self, element: Any) -> SerdeError:
        names = [*getattr(element, "_fields", ()), *getattr(element, "__dict__", ())]
        missing = next(name for name in self._fields if not hasattr(element, name))
        return SerdeError(f"{type(element).__name__} has no field {missing}, the key{nearest(missing, names)}")


class Merge:
    """The function from an element and a row to the enriched element.

    Args:
      names: the names of the row's values in it.
      output_type: a NamedTuple or another class that takes the fields by name; None: a dict of a dict, else `beam.Row`.
    """

    def __init__(self, names: Sequence[str], output_type: Callable[..., Any] | None) -> None:
        self.names = tuple(names)
        self._output_type = output_type

    def __call__(self, element: Any, row: tuple[Any, ...]) -> Any:
        if isinstance(element, dict):
            found = {**element, **dict(zip(self.names, row, strict=True))}
            if len(found) != len(element) + len(self.names):
                raise self._clash(element)
            return found if self._output_type is None else self._output_type(**found)
        given = element._asdict() if hasattr(element, "_asdict") else dict(vars(element))
        found = {**given, **dict(zip(self.names, row, strict=True))}
        if len(found) != len(given) + len(self.names):
            raise self._clash(given)
        if self._output_type is not None:
            return self._output_type(**found)
        import apache_beam as beam

        return beam.Row(**found)

    def _clash(self, given: dict[str, Any]) -> Clash:
        both = ", ".join(name for name in self.names if name in given)
        return Clash(f"the element has a field {both} already: give Enrich a prefix, or other columns")
