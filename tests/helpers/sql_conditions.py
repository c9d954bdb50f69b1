"""Random conditions of SQL on metadata, and records for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hypothesis import strategies as st

from rmqio.model import Record

TABLE: Final = """
CREATE TABLE t (a INT, tags STRING METADATA, p MAP<STRING, STRING> METADATA FROM 'properties',
  st TIMESTAMP_LTZ(3) METADATA FROM 'store_timestamp' VIRTUAL) WITH ('topic' = 't', {options});
"""

_OPERATORS: Final = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
_PROPERTY: Final = st.sampled_from(["p['k']", "p['l']", "tags"])
_TEXT: Final = st.sampled_from(["'a'", "'b'", "'5'", "'12'", "'设备'", "'5.5'", "NULL"])
_NUMBER: Final = st.sampled_from(["5", "-1", "12", "5.5", "5E0"])
_KIND: Final = st.sampled_from(["INT", "DOUBLE", "DECIMAL(10, 1)"])
_SECOND: Final = st.integers(0, 6).map(lambda n: f"TIMESTAMP '1970-01-01 00:00:0{n}'")
_ATOMS: Final = st.one_of(
    st.tuples(_PROPERTY, _OPERATORS, _TEXT).map(" ".join),
    st.tuples(_PROPERTY, st.sampled_from([" IN ", " NOT IN "]), st.lists(_TEXT, min_size=1, max_size=3)).map(
        lambda parts: f"{parts[0]}{parts[1]}({', '.join(parts[2])})"
    ),
    st.tuples(_PROPERTY, st.sampled_from(["IS NULL", "IS NOT NULL"])).map(" ".join),
    st.tuples(_PROPERTY, _TEXT).map(lambda parts: f"{parts[0]} IS NOT DISTINCT FROM {parts[1]}"),
    st.tuples(_PROPERTY, _KIND, _OPERATORS, _NUMBER).map(
        lambda parts: f"TRY_CAST({parts[0]} AS {parts[1]}) {parts[2]} {parts[3]}"
    ),
    st.tuples(_PROPERTY, _KIND, _NUMBER, _NUMBER).map(
        lambda parts: f"TRY_CAST({parts[0]} AS {parts[1]}) BETWEEN {parts[2]} AND {parts[3]}"
    ),
    st.tuples(st.just("st"), _OPERATORS, _SECOND).map(" ".join),
    st.tuples(_SECOND, _SECOND).map(lambda parts: f"st BETWEEN {parts[0]} AND {parts[1]}"),
    st.just("MOD(CHAR_LENGTH(tags), 2) = 1"),
)  # fmt: skip
CONDITIONS: Final = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" AND ", " OR "]), inner).map(lambda parts: f"({''.join(parts)})"),
        inner.map(lambda text: f"NOT ({text})"),
        inner.map(lambda text: f"({text}) IS TRUE"),
    ),
    max_leaves=5,
)
PROPERTIES: Final[tuple[Mapping[str, str], ...]] = tuple(
    {} if k is None and other is None else {key: text for key, text in (("k", k), ("l", other)) if text is not None}
    for k in (None, "a", "5", "5.5", " 12 ", "设备", "1e1", "+5.", "Infinity", "x5")
    for other in (None, "b", "12")
)


def record_with(body: bytes = b"{}", tags: str | None = None, **fields: Any) -> Record:
    """Returns a record with this body and tag."""
    raw = b"" if tags is None else b"TAGS\x01%b\x02" % tags.encode()
    return Record("t", "broker-a", 0, 0, body, 0, 0, raw, 0, 0, 0, 0, 0, b"", b"", 0, 0)._replace(**fields)
