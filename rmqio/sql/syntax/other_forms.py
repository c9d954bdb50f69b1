"""Forms of other systems that the grammar does not have: by the text up to the place that is not valid."""

from __future__ import annotations

import re
from typing import Final

_LONGEST: Final = 300
_NO_BITS: Final = "there are no operators of bits"
OPERATORS: Final = {
    "::": "a cast is CAST(... AS type), and not ::", "&": _NO_BITS, "|": f"{_NO_BITS}, and text is joined by ||",
    "^": f"{_NO_BITS}, and powers are POWER(a, b)",
}  # fmt: skip
"""Operators of other systems."""
UNICODE: Final = "U&'...' is not supported: write the characters themselves, as SQL is UTF-8 text"
_FORMS: Final = tuple(
    (re.compile(rf"(?:^|[;\s])({pattern})$", re.IGNORECASE | re.DOTALL), message)
    for pattern, message in (
        (
            r"(?:FROM|JOIN|INTO|TABLE|VIEW|DESCRIBE)\s+(?:`[^`]+`|\w+)\.",
            "a table's name has one part, and catalogs are given by --catalog",
        ),
        (
            r"CREATE\s+OR",
            "CREATE OR REPLACE is not supported: DROP TABLE IF EXISTS, or DROP VIEW IF EXISTS, comes before",
        ),
        (
            r"CREATE\s+(?:TEMPORARY\s+)?TABLE\s[^;]*\sLIKE",
            "CREATE TABLE ... LIKE is not supported: write the columns, as SHOW CREATE TABLE shows them",
        ),
        (
            r"CREATE\s+(?:TEMPORARY\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?[^\s(]+\s+(?:WITH|AS)",
            "a table needs its columns: CREATE TABLE t (a INT) WITH (...), then INSERT INTO t SELECT ...",
        ),
        (
            r"CREATE\s+(?:TEMPORARY\s+)?TABLE\s[^;]*\)\s*AS",
            "CREATE TABLE ... AS SELECT is not supported: INSERT INTO the table follows in a statement of its own",
        ),
        (
            r"WITH\s+RECURSIVE\s+(?:`[^`]+`|\w+)",
            "WITH RECURSIVE is not supported: no query reads its own rows; a fixed depth is as many joins",
        ),
        (r"INSERT\s+INTO\s+\S+\s+PARTITION", "PARTITION is not supported: a topic is not partitioned by columns"),
        (
            r"EXPLAIN\s+(?:ESTIMATED_COST|CHANGELOG_MODE|JSON_EXECUTION_PLAN|PLAN_ADVICE)",
            "EXPLAIN takes nothing else: it shows the whole plan, with the kind of each relation",
        ),
        (r"SET\s+(?:[\w\-]+(?:\.[\w\-]+)+|[\w.\-]+\s*=[^;]*)", "SET takes quotes: SET 'key' = 'value'"),
        (r"(?:ADD|REMOVE)", "jars are not supported: CREATE FUNCTION f AS 'module.name' LANGUAGE PYTHON"),
        (r"CREATE\s[^;]*\sUSING", "jars are not supported: CREATE FUNCTION f AS 'module.name' LANGUAGE PYTHON"),
        (r"(?:LOAD|UNLOAD)", "modules are not supported: all functions are there"),
        (
            r"SHOW\s+(?:TABLES|VIEWS|FUNCTIONS)\s+(?:NOT|LIKE|FROM|IN)",
            "SHOW TABLES, SHOW VIEWS and SHOW FUNCTIONS take nothing else: they show all names",
        ),
        (
            r"SHOW\s+(?:CURRENT|CATALOGS|DATABASES|SCHEMAS)",
            "there are no catalogs and databases to show: --catalog gives tables, and SHOW TABLES shows them",
        ),
        (
            r"SHOW\s+(?:FULL\s+)?COLUMNS",
            "SHOW COLUMNS is not supported: DESCRIBE t shows the columns of t",
        ),
        (r"SHOW\s+JOBS?", "SHOW JOBS is not supported: rmqio sql ps --jobs DIR shows the jobs of a folder"),
        (r"SHOW\s+USER", "SHOW USER FUNCTIONS is not supported: SHOW FUNCTIONS shows first what was created"),
        (r"SHOW\s+CREATE\s+\w+", "SHOW CREATE takes TABLE or VIEW, and a name"),
        (
            r"DESC(?:RIBE)?\s+(?:TABLE|(?:EXTENDED|FORMATTED|FUNCTION|CATALOG|DATABASE|JOB)\s+(?:`[^`]+`|\w+))",
            "DESCRIBE takes a table or a view: DESCRIBE t shows its columns, SHOW CREATE TABLE t also its options",
        ),
        (r"COMPILE", "COMPILE PLAN is not supported: plans are made when a job starts, and --explain shows them"),
        (r"[^;]*\sMULTISET\s*<", "MULTISET is not a type of columns: use ARRAY, or MAP<..., INT>"),
    )
)


def message_for(text: str) -> tuple[str, int] | None:
    """Returns the message for a text that ends at what is not valid, and where the form begins; None: there is none."""
    cut = max(0, len(text) - _LONGEST)
    for form, message in _FORMS:
        if (found := form.search(text, cut)) is not None:
            return message, found.start(1)
    return None
