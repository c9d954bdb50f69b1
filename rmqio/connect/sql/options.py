"""How a table is read and written, checked: also for a command line, before Beam is imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rmqio.errors import LocalError
from rmqio.near_names import did_you_mean

MODES: Final = ("upsert", "insert", "ignore")
_MOST_PARTITIONS: Final = 1024


def check_partitions(partitions: object) -> None:
    """Raises `LocalError` unless a table can be read in so many parts."""
    if not isinstance(partitions, int) or not 1 <= partitions <= _MOST_PARTITIONS:
        raise LocalError(f"partitions is {partitions!r}; it must be from 1 to {_MOST_PARTITIONS}")


class TableOptions(NamedTuple):
    """See `WriteToSql`."""

    key: tuple[str, ...] | None
    mode: str
    columns: tuple[str, ...] | None
    ignore_unknown: bool

    @staticmethod
    def of(
        key: str | Sequence[str] | None, mode: str, columns: str | Sequence[str] | None, *, ignore_unknown: bool
    ) -> TableOptions:
        """Returns the options. Raises `LocalError` for values that they do not have, or that do not fit together."""
        if mode not in MODES:
            hint = did_you_mean(str(mode), MODES)
            raise LocalError(f'mode is {mode!r}; it must be "upsert", "ignore" or "insert"{hint}')
        if mode == "insert" and key is not None:
            raise LocalError('mode="insert" uses no key: leave key out, or use mode="upsert"')
        keys = None if key is None else tuple([key] if isinstance(key, str) else key)
        chosen = None if columns is None else tuple([columns] if isinstance(columns, str) else columns)
        if keys is not None and chosen is not None and not set(keys) <= set(chosen):
            raise LocalError(f"columns leaves out {sorted(set(keys) - set(chosen))[0]}, which is in key")
        return TableOptions(keys, mode, chosen, ignore_unknown)
