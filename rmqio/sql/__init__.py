"""SQL over RocketMQ topics, in any Beam pipeline.

`SqlTransform` and its neighbours are imported when they are asked for: Beam, Lark and msgspec are not needed before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqio.loading import lazy_names
from rmqio.sql.user.hints import udaf, udf, udtf

if TYPE_CHECKING:
    from rmqio.sql.transform import BadRow, SqlResult, SqlTransform, element_time, row_time

__all__ = ["BadRow", "SqlResult", "SqlTransform", "element_time", "row_time", "udaf", "udf", "udtf"]

__getattr__ = lazy_names(
    __name__,
    dict.fromkeys(("BadRow", "SqlResult", "SqlTransform", "element_time", "row_time"), "transform"),
    packages=("lark", "msgspec"),
    needs="SQL needs the package {}: pip install 'rmqio[sql]'",
)
