"""Functions of other systems, and what stands for them here."""

from __future__ import annotations

from typing import Final

_FIRST: Final = "the row WHERE rn = 1 of ROW_NUMBER() OVER (PARTITION BY key ORDER BY column)"
_OWN: Final = "an aggregate of your own: CREATE FUNCTION f AS 'module.name' LANGUAGE PYTHON"
_BITS: Final = "a function of your own: there are none of bits"
_FUNCTION: Final = "a function of your own: CREATE FUNCTION f AS 'module.name' LANGUAGE PYTHON"
_GROUPING: Final = ("TUMBLE", "HOP", "SESSION")
AUXILIARY: Final[dict[str, tuple[str, int | None]]] = {
    f"{function}_{suffix}": (function, column)
    for function in _GROUPING
    for suffix, column in (("START", 0), ("END", 1), ("ROWTIME", 2), ("PROCTIME", None))
}
"""Functions of SELECT for a window of GROUP BY, and the window's column that each one is; None: it is PROCTIME()."""
_MAKES: Final = "{0} makes windows, not a value: use it in FROM, as in TABLE({0}(TABLE t, DESCRIPTOR(time), ...))"
_AND: Final = ", or in GROUP BY, where {0}_START and {0}_END are values of SELECT"
WINDOWS: Final = {
    "CUMULATE": _MAKES.format("CUMULATE"),
    **{each: (_MAKES + _AND).format(each) for each in _GROUPING},
}
"""Functions of FROM and of GROUP BY, and what is said of them anywhere else."""
OPERATORS: Final = {
    "ARRAY": "ARRAY[a, b]", "MAP": "MAP[key, value]", "ROW": "ROW(a, b), without quotes", "NEGATE": "-a",
    "LIKE": "a LIKE b",
}  # fmt: skip
"""Constructors and operators that are no functions, though `ARRAY`(a, b) reads as one, and how they are written."""
ELSEWHERE: Final = {
    "CONV": _FUNCTION, "SOUNDEX": _FUNCTION, "METAPHONE": _FUNCTION, "LEVENSHTEIN": _FUNCTION,
    "ANY_VALUE": "MIN or MAX", "SINGLE_VALUE": "MIN or MAX", "FIRST": "MIN or MAX", "LAST": "MIN or MAX",
    "ARG_MAX": _FIRST, "ARG_MIN": _FIRST, "MAX_BY": _FIRST, "MIN_BY": _FIRST,
    "GROUP_CONCAT": "LISTAGG", "STRING_AGG": "LISTAGG", "WM_CONCAT": "LISTAGG", "ARRAY_CONCAT_AGG": "ARRAY_AGG",
    "COLLECT_LIST": "ARRAY_AGG", "COLLECT_SET": "ARRAY_AGG(DISTINCT a)",
    "JSON_AGG": "JSON_ARRAYAGG", "JSON_GROUP_ARRAY": "JSON_ARRAYAGG", "JSON_OBJECT_AGG": "JSON_OBJECTAGG",
    "JSON_GROUP_OBJECT": "JSON_OBJECTAGG", "STDEV": "STDDEV", "VARIANCE_POP": "VAR_POP", "VARIANCE_SAMP": "VAR_SAMP",
    "MEDIAN": _OWN, "PERCENTILE": _OWN, "PERCENTILE_CONT": _OWN, "PERCENTILE_DISC": _OWN, "PERCENTILE_APPROX": _OWN,
    "APPROX_PERCENTILE": _OWN, "COUNT_IF": "COUNT(*) FILTER (WHERE ...)", "COUNTIF": "COUNT(*) FILTER (WHERE ...)",
    "SUM_IF": "SUM(a) FILTER (WHERE ...)", "SUMIF": "SUM(a) FILTER (WHERE ...)",
    "ISNULL": "IFNULL(a, b), or a IS NULL", "NVL2": "CASE WHEN a IS NULL THEN ... END", "CONVERT": "CAST(a AS type)",
    "SAFE_CAST": "TRY_CAST(a AS type)", "TO_NUMBER": "CAST(a AS DECIMAL(p, s))",
    "LEN": "CHAR_LENGTH", "DATALENGTH": "OCTET_LENGTH", "UCASE": "UPPER", "LCASE": "LOWER", "CHARINDEX": "LOCATE",
    "STRPOS": "INSTR(text, part)", "CONTAINS": "POSITION(part IN text) > 0", "SPLIT_PART": "SPLIT_INDEX, from 0",
    "REGEXP_LIKE": "REGEXP(text, pattern)", "FORMAT": "CONCAT, LPAD and CAST", "MID": "SUBSTRING",
    "DATE_TRUNC": "FLOOR(time TO HOUR)", "TRUNC": "TRUNCATE of a number, FLOOR(time TO DAY) of a time",
    "DATE_PART": "EXTRACT(unit FROM time)", "TO_CHAR": "DATE_FORMAT(time, 'yyyy-MM-dd'), or CAST(a AS STRING)",
    "STR_TO_DATE": "TO_TIMESTAMP(text, 'yyyy-MM-dd'), or TO_DATE", "PARSE_DATETIME": "TO_TIMESTAMP(text, format)",
    "DATEADD": "TIMESTAMPADD(unit, number, time)", "DATE_DIFF": "TIMESTAMPDIFF(unit, from, to), or DATEDIFF",
    "MONTHS_BETWEEN": "TIMESTAMPDIFF(MONTH, from, to)", "ADD_MONTHS": "TIMESTAMPADD(MONTH, number, time)",
    "GETDATE": "CURRENT_TIMESTAMP", "SYSDATE": "CURRENT_TIMESTAMP", "CURDATE": "CURRENT_DATE",
    "CURRENT_WATERMARK": "windows, whose rows come when the watermark passes: no runner tells it to a function",
    "GET_JSON_OBJECT": "JSON_VALUE(text, '$.a'), or JSON_QUERY", "JSON_EXTRACT": "JSON_VALUE(text, '$.a')",
    "JSON_EXTRACT_STRING": "JSON_VALUE(text, '$.a')", "JSON_EXTRACT_SCALAR": "JSON_VALUE(text, '$.a')",
    "JSON_TUPLE": "JSON_VALUE(text, '$.a') for each field", "FROM_JSON": "JSON_VALUE(text, '$.a' RETURNING INT)",
    "TO_JSON": "JSON_STRING", "JSON_VALID": "a IS JSON", "IS_JSON": "a IS JSON",
    "EXPLODE": "CROSS JOIN UNNEST(array) AS t (a)", "POSEXPLODE": "UNNEST(array) WITH ORDINALITY AS t (a, n)",
    "SIZE": "CARDINALITY", "ARRAY_LENGTH": "CARDINALITY", "ARRAY_SIZE": "CARDINALITY", "LIST": "ARRAY_AGG",
    "ELEMENT_AT": "array[position], from 1, or map[key]", "TO_ARRAY": "ARRAY[...]",
    "BITAND": _BITS, "BITOR": _BITS, "BITXOR": _BITS, "BITNOT": _BITS,
}  # fmt: skip
"""By name in upper case. None is a function here: a test looks."""
