"""SQL over RocketMQ topics, in any Beam pipeline.

`SqlTransform` and its neighbours are imported when they are asked for: Beam, Lark and msgspec are not needed before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqio.sql.user.hints import udaf, udf, udtf

if TYPE_CHECKING:
    from rmqio.sql.transform import BadRow, SqlResult, SqlTransform, element_time, row_time

__all__ = ["BadRow", "SqlResult", "SqlTransform", "element_time", "row_time", "udaf", "udf", "udtf"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rmqio.errors import LocalError

    try:
        from rmqio.sql import transform
    except ModuleNotFoundError as error:
        if error.name in ("lark", "msgspec"):
            raise LocalError(f"SQL needs the package {error.name}: pip install 'rmqio[sql]'") from error
        raise
    return getattr(transform, name)
