"""Constants as SQL writes them, and durations."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from rmqio.sql import values
from rmqio.sql.types import SqlType


def constant_text(value: Any, kind: SqlType) -> str:
    """Returns a constant as SQL writes it."""
    if value is None:
        return "NULL"
    match kind.kind:
        case "VARCHAR":
            return "'" + str(value).replace("'", "''") + "'"
        case "VARBINARY":
            return f"X'{value.hex()}'"
        case "BOOLEAN":
            return str(value).upper()
        case "DATE":
            return f"DATE '{values.text_of_date(value)}'"
        case "TIME":
            return f"TIME '{values.text_of_time(value, kind.precision)}'"
        case "TIMESTAMP_LTZ":
            return f"TIMESTAMP_LTZ '{values.text_of_timestamp(value, kind.precision)}Z'"
        case "TIMESTAMP":
            return f"TIMESTAMP '{values.text_of_timestamp(value, kind.precision)}'"
        case "INTERVAL_DAY":
            return _interval(value, _SIZES)
        case "INTERVAL_MONTH":
            return _interval(value, (("YEAR", 12), ("MONTH", 1)))
    return str(value)


_SIZES: Final = (
    ("DAY", values.DAY_US), ("HOUR", 3_600_000_000), ("MINUTE", 60_000_000), ("SECOND", 1_000_000),
)  # fmt: skip


def _interval(value: int, sizes: Sequence[tuple[str, int]]) -> str:
    """The interval in its largest unit of which it has a whole number; else in the smallest one."""
    unit, size = next((each for each in sizes if value and value % each[1] == 0), sizes[-1])
    return f"INTERVAL '{format(Decimal(value) / size, 'f')}' {unit}"


def duration(milliseconds: int) -> str:
    """Returns `1 h 30 min`."""
    parts, rest = [], milliseconds
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts) or "0 s"
