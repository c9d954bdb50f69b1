"""The only file of `rmqio.sql` that uses Beam's private modules: how Beam reads type hints, and the fields of a row."""

from __future__ import annotations

from typing import Any

from apache_beam.typehints import native_type_compatibility
from apache_beam.typehints.row_type import RowTypeConstraint

__all__ = ["fields_of", "typing_type"]

if hasattr(native_type_compatibility, "convert_to_python_type"):
    _convert = native_type_compatibility.convert_to_python_type
else:  # Beam 2.61
    _convert = native_type_compatibility.convert_to_typing_type


def typing_type(hint: Any) -> Any:
    """Returns a type hint of Beam as one of `typing`; others as they are."""
    return _convert(hint)


def fields_of(row: RowTypeConstraint) -> list[tuple[str, Any]]:
    """Returns the names and types of a row's fields."""
    return list(row._fields)
