"""Columns of keys that can store different values as one."""

from __future__ import annotations

from typing import Any, Final

_CUT: Final = """\
SELECT column_name FROM information_schema.statistics
WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :name AND sub_part IS NOT NULL"""
"""Indexes of MySQL can have only the beginnings of texts."""


def loose_columns(table: Any, connection: Any) -> frozenset[str]:
    """Returns the columns that can take two values of a batch as one, beside what collations of texts do.

    They round times and decimals, fill up or cut texts and bytes, or compare what the values mean, as intervals do.
    """
    import sqlalchemy as sa

    if connection.dialect.name not in ("mysql", "mariadb"):
        return frozenset(each.name for each in table.columns if not _is_firm(each.type))
    if "STRICT" not in str(connection.execute(sa.text("SELECT @@sql_mode")).scalar()):
        return frozenset(each.name for each in table.columns)  # it cuts whatever does not fit
    cut = {row[0] for row in connection.execute(sa.text(_CUT), {"schema": table.schema, "name": table.name})}
    return frozenset(each.name for each in table.columns if each.name in cut or not _is_firm(each.type))


def _is_firm(kind: Any) -> bool:
    """Whether a column of SQLAlchemy's type keeps different values apart, but for the collation of a text."""
    import sqlalchemy as sa

    if isinstance(kind, sa.BINARY):  # of a fixed length: filled up with zeros
        return False
    return isinstance(kind, (sa.Integer, sa.String, sa.Date, sa.Boolean, sa.LargeBinary, sa.types._Binary))
