"""Words of SQL that are refused by name, each with a way out."""

from __future__ import annotations

from typing import Final

REFUSED: Final = {
    "MATCH_RECOGNIZE": "MATCH_RECOGNIZE is not supported: no runner of Beam recognizes patterns of rows",
    "NATURAL": "NATURAL JOIN is not supported: a new column would change the result; write ON ... or USING (...)",
    "UPDATE": "UPDATE is not supported: a topic cannot be changed; INSERT INTO a table with a PRIMARY KEY",
    "DELETE": "DELETE is not supported: a topic cannot be changed",
    "ALTER": "ALTER is not supported: change CREATE TABLE",
    "PIVOT": "PIVOT is not supported: use aggregates with FILTER",
    "UNPIVOT": "UNPIVOT is not supported: use CROSS JOIN UNNEST of an ARRAY",
    "QUALIFY": "QUALIFY is not supported: use a sub-query with WHERE",
    "TABLESAMPLE": "TABLESAMPLE is not supported: use WHERE RAND() < 0.1",
    "ILIKE": "ILIKE is not supported: use LOWER(...) LIKE",
    "OVERLAPS": "OVERLAPS is not supported: (a, b) and (c, d) do so if a <= d AND c <= b",
    "TRUNCATE": "TRUNCATE is not supported: a topic cannot be emptied",
    "ANALYZE": "ANALYZE is not supported: plans need no statistics",
    "WITHIN": "WITHIN GROUP is not supported: rows of a group come in no order",
    "TOP": "TOP is not supported: use LIMIT at the end of the query",
    "USE": "USE is not supported: catalogs are given by --catalog, and names are looked up in all of them",
    "CATALOG": "CREATE CATALOG is not supported: catalogs are given by --catalog, as a file or a schema registry's URL",
    "DATABASE": "databases are not supported: a catalog has tables only",
    "MODULE": "modules are not supported: all functions are there",
    "JAR": "jars are not supported: functions are Python, CREATE FUNCTION f AS 'module.name' LANGUAGE PYTHON",
    "MATERIALIZED": "materialized tables are not supported: INSERT INTO a table keeps it up to date",
}
