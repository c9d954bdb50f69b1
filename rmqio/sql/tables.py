"""Tables of SQL for other front ends, such as Beam YAML: declared by a text, read with their times, and written to."""

from __future__ import annotations

from rmqio.sql.analysis.definitions import watermark_delay_ms
from rmqio.sql.catalog.tables import METADATA, metadata_named
from rmqio.sql.compile.description import ToTable
from rmqio.sql.errors import Refusal, SqlError, nearest
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.runtime.table_time import TableTime
from rmqio.sql.runtime.translation import Translation
from rmqio.sql.scripts.script import Script
from rmqio.sql.transform import PCOLLECTION, BadRow, SqlTransform
from rmqio.sql.transform.inputs import ElementsInput, declared

__all__ = [
    "METADATA",
    "PCOLLECTION",
    "BadRow",
    "Connection",
    "ElementsInput",
    "Refusal",
    "Script",
    "SqlError",
    "SqlTransform",
    "TableTime",
    "ToTable",
    "Translation",
    "declared",
    "metadata_named",
    "nearest",
    "watermark_delay_ms",
]
