"""The contract of deserializers and serializers, and helpers that the ones in this package share.

Both are callables whose constructor parses their configuration once. They are picklable, equal by value, and keep no
state between calls. A failure is a `SerdeError` that says what is wrong and where. It never quotes the body, because
the error output can go to a log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from rmqio.errors import LocalError, RmqioError, SerdeError
from rmqio.internal_errors import internal_error
from rmqio.model import Message, Record

T = TypeVar("T")
E = TypeVar("E")
T_co = TypeVar("T_co", covariant=True)
E_contra = TypeVar("E_contra", contravariant=True)


class Deserializer(Protocol[T_co]):
    """Converts a record to an element, for `ReadFromRocketMQ`. It gets the whole record, with keys, tags and so on."""

    @property
    def output_type(self) -> Any:
        """The type of the elements, as a type hint for Beam."""
        ...

    def __call__(self, record: Record) -> T_co:
        """Returns the element. If it raises `SerdeError`, the record goes to the error output."""
        ...


class BulkDeserializer(Deserializer[T_co], Protocol[T_co]):
    """A deserializer that decodes many records faster than one by one. Reads call `many` if it is there."""

    def many(self, records: Sequence[Record]) -> tuple[Sequence[T_co], dict[int, Exception]]:
        """Returns the elements of the records that decode, in order, and the error of each other one by its position.

        Raises what is no fault of a record: an `RmqioError` that is not a `SerdeError`.
        """
        ...


class Serializer(Protocol[E_contra]):
    """Converts an element to a message, for `WriteToRocketMQ`."""

    def __call__(self, element: E_contra) -> Message:
        """Returns the message, without a topic unless the serializer chooses one.

        If it raises `SerdeError`, the element goes to the output `failed`.
        """
        ...


def output_type_of(deserializer: Callable[[Record], object]) -> Any:
    """The type hint of a deserializer's results; `Any` for a plain callable without one."""
    return getattr(deserializer, "output_type", Any)


@dataclass(frozen=True, slots=True)
class BodyDeserializer(Generic[T]):
    """Adapts a function of the body, `bytes -> T`. An exception of it becomes a `SerdeError` with that cause.

    Args:
      function: must be picklable (at module level), like everything that Beam sends to a worker.
      output_type: the type hint of its results.
    """

    function: Callable[[bytes], T]
    output_type: Any = Any

    def __call__(self, record: Record) -> T:
        try:
            return self.function(record.body)
        except SerdeError:
            raise
        except Exception as error:  # a user's function can raise anything
            raise undecodable(record, f"{_name(self.function)} raised {type(error).__name__}") from error


@dataclass(frozen=True, slots=True)
class BodySerializer(Generic[E]):
    """Adapts a function that returns the body, `element -> bytes`. An exception of it becomes a `SerdeError`."""

    function: Callable[[E], bytes]

    def __call__(self, element: E) -> Message:
        try:
            body = self.function(element)
        except SerdeError:
            raise
        except Exception as error:  # as above
            raise unencodable(element, f"{_name(self.function)} raised {type(error).__name__}") from error
        return message_of(element, body)


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def undecodable(record: Record, why: str) -> SerdeError:
    """The error for a record: its coordinates and size, and the reason, but not its content."""
    return SerdeError(
        f"{record.queue}, offset {record.queue_offset}: body of {len(record.body)} bytes does not deserialize: {why}"
    )


def error_of_record(error: Exception, function: object) -> Exception:
    """Returns the error of a record or element that a deserializer or serializer has raised.

    A function of the user's can raise anything. Another error than `SerdeError` of one of ours is a fault of ours, and
    counted.

    Raises:
      Exception: what the record or element did not cause.
    """
    if isinstance(error, SerdeError):
        return error
    if isinstance(error, RmqioError):  # e.g. a registry is down: good records are no dead letters
        raise error
    if not getattr(function, "__module__", "").startswith("rmqio."):
        return error
    internal_error(error, "a body")
    return SerdeError(f"internal error: {type(error).__name__}")  # its text can quote the body


def unencodable(element: object, why: str) -> SerdeError:
    """The error for an element: its type and the reason, but not its content."""
    return SerdeError(f"element of type {type(element).__qualname__} does not serialize: {why}")


def message_of(element: object, body: object, *, keys: Sequence[str] = (), tags: str | None = None) -> Message:
    """The message for a serialized element. An empty body is refused: the broker answers it with an internal error."""
    if not isinstance(body, bytes):
        raise unencodable(element, f"the body is of type {type(body).__qualname__}, not bytes")
    if not body:
        raise unencodable(element, "the body is empty, and RocketMQ accepts no message without a body")
    return Message(body, keys=tuple(keys), tags=tags)


def field_text(element: object, field: str, value: object) -> str:
    """The value of a field as text. Raises `SerdeError` unless it is text or a whole number.

    Other types are refused because languages write them differently (`True` or `true`, `1e-05` or `1.0E-5`), so that a
    consumer would not find the key.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise unencodable(element, f"field {field!r} is of type {type(value).__qualname__}, not text or a whole number")
    try:
        text = str(value)
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError as error:
        raise unencodable(element, f"field {field!r} holds a lone surrogate, which is not UTF-8 text") from error
    except ValueError as error:
        raise unencodable(element, f"field {field!r} has more digits than Python converts to text") from error
    return text


def key_text(element: object, field: str, value: object) -> str:
    """`field_text` for a key or a tag: refuses the characters that separate properties."""
    text = field_text(element, field, value)
    if "\x01" in text or "\x02" in text:
        raise unencodable(element, f"field {field!r} holds a separator of RocketMQ's properties (code 1 or 2)")
    return text


# Keys and tags of messages, taken from the fields of an element.


def names_of_keys(given: Sequence[str]) -> tuple[str, ...]:
    """The names as a tuple. Raises `LocalError` for a single text, whose letters would be the names."""
    if isinstance(given, str):
        raise LocalError(f"key_fields is {given!r}; it must be several names: ({given!r},)")
    return tuple(given)


def keys_of(element: object, fields: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """The keys of a message. Raises `SerdeError` if a field is missing, or cannot become a key."""
    keys = []
    for name in names:
        if fields.get(name) is None:
            raise unencodable(element, f"field {name!r}, which is a key, is missing")
        text = key_text(element, name, fields[name])
        if text.split() != [text]:
            raise unencodable(element, f"field {name!r} is empty or contains white space, which separates keys")
        keys.append(text)
    return keys


def tag_of(element: object, fields: Mapping[str, Any], name: str | None) -> str | None:
    """The tag of a message; None if the field is missing. Raises `SerdeError` if the field cannot become a tag."""
    if name is None or fields.get(name) is None:
        return None
    # An empty tag means no tag: the broker drops it.
    return key_text(element, name, fields[name]) or None
