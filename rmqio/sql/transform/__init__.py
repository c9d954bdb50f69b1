"""SQL inside any Beam pipeline: PCollections with schema in and out."""

from __future__ import annotations

from rmqio.sql.transform.elements import BadRow, SqlResult
from rmqio.sql.transform.inputs import element_time, row_time
from rmqio.sql.transform.sql_transform import PCOLLECTION, SqlTransform

__all__ = ["PCOLLECTION", "BadRow", "SqlResult", "SqlTransform", "element_time", "row_time"]
