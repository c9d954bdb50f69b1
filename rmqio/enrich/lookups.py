"""Look-ups in dimension tables for programs without Beam, such as plain PySpark: what to load, when, and the copy."""

from __future__ import annotations

from rmqio.enrich.definition import Table
from rmqio.enrich.loading import Wanted
from rmqio.enrich.refresh import Schedule, acquire
from rmqio.enrich.table.columnar import found as found_columns
from rmqio.enrich.table.names import nearest
from rmqio.enrich.table.rows import Spec, key_fields

__all__ = ["Schedule", "Spec", "Table", "Wanted", "acquire", "found_columns", "key_fields", "nearest"]
