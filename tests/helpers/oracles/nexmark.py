"""Nexmark's results by DuckDB, from the events themselves."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from bench.nexmark.generator import Event

if TYPE_CHECKING:
    import duckdb

_TABLES: Final = (
    """CREATE TABLE person (id BIGINT, name VARCHAR, emailAddress VARCHAR, creditCard VARCHAR, city VARCHAR,
    state VARCHAR, dateTime TIMESTAMP, extra VARCHAR)""",
    """CREATE TABLE auction (id BIGINT, itemName VARCHAR, description VARCHAR, initialBid BIGINT, reserve BIGINT,
    dateTime TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra VARCHAR)""",
    """CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR,
    dateTime TIMESTAMP, extra VARCHAR)""",
)
_VIEWS: Final = """
CREATE VIEW matched AS SELECT a.*, b.auction, b.bidder, b.price, b.dateTime AS bid_dateTime, b.extra AS bid_extra
FROM auction AS a JOIN bid AS b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires;
CREATE VIEW best AS SELECT * FROM matched
QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY price DESC, bid_dateTime) = 1;
CREATE VIEW hops AS SELECT auction, start, COUNT(*) AS num
FROM (
  SELECT auction, time_bucket(INTERVAL 2 SECOND, dateTime) - INTERVAL 2 SECOND * n AS start
  FROM bid, range(5) AS r (n)
) GROUP BY ALL;
CREATE VIEW gaps AS SELECT bidder, dateTime,
  dateTime - LAG(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime) < INTERVAL 10 SECOND AS goes_on FROM bid;
CREATE VIEW sessions AS SELECT bidder, dateTime,
  SUM(CASE WHEN goes_on THEN 0 ELSE 1 END) OVER (PARTITION BY bidder ORDER BY dateTime) AS number FROM gaps;
"""


def _sizes(what: str) -> str:
    bounds = ("", "price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
    return ", ".join(f"COUNT({what})" + (f" FILTER (WHERE {bound})" if bound else "") for bound in bounds)


_SIZES: Final = ", ".join(map(_sizes, ("*", "DISTINCT bidder", "DISTINCT auction")))
_EUROS: Final = "CAST(0.908 * CAST(price AS DECIMAL(19, 0)) AS DECIMAL(23, 3))"
_DAY: Final = "strftime(dateTime, '%Y-%m-%d')"
_NUMBER: Final = "nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')"
_NAMED: Final = "lower(channel) IN ('apple', 'google', 'facebook', 'baidu')"

QUERIES: Final = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": f"SELECT auction, bidder, {_EUROS}, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """SELECT name, city, state, a.id FROM auction AS a, person AS p
        WHERE seller = p.id AND category = 10 AND state IN ('OR', 'ID', 'CA')""",
    "q4": """SELECT category, CAST(SUM(final) // COUNT(*) AS BIGINT)
        FROM (SELECT id, category, MAX(price) AS final FROM matched GROUP BY ALL) GROUP BY category""",
    "q5": "SELECT auction, num FROM hops QUALIFY RANK() OVER (PARTITION BY start ORDER BY num DESC) = 1",
    "q6": """SELECT seller, CAST(SUM(price) OVER w // COUNT(*) OVER w AS BIGINT) FROM best
        WINDOW w AS (PARTITION BY seller ORDER BY bid_dateTime ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)""",
    "q7": """SELECT b.auction, b.bidder, b.price, b.dateTime, b.extra FROM bid AS b, (
        SELECT time_bucket(INTERVAL 10 SECOND, dateTime) AS start, MAX(price) AS most FROM bid GROUP BY ALL)
        WHERE price = most AND dateTime BETWEEN start AND start + INTERVAL 10 SECOND""",
    "q8": """SELECT p.id, p.name, time_bucket(INTERVAL 10 SECOND, p.dateTime) FROM person AS p WHERE EXISTS (
        SELECT 1 FROM auction AS a WHERE a.seller = p.id
        AND time_bucket(INTERVAL 10 SECOND, a.dateTime) = time_bucket(INTERVAL 10 SECOND, p.dateTime))""",
    "q9": "SELECT * FROM best",
    "q10": f"SELECT auction, bidder, price, dateTime, extra, {_DAY}, strftime(dateTime, '%H:%M') FROM bid",
    "q11": """SELECT bidder, COUNT(*), MIN(dateTime), MAX(dateTime) + INTERVAL 10 SECOND
        FROM sessions GROUP BY bidder, number""",
    "q13": "SELECT auction, bidder, price, dateTime, 'value-' || (auction % 10000) FROM bid",
    "q14": f"""SELECT auction, bidder, {_EUROS},
        CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN hour(dateTime) IN (7, 19) THEN 'otherTime' ELSE 'nightTime' END,
        dateTime, extra, length(extra) - length(replace(extra, 'c', '')) FROM bid
        WHERE {_EUROS} > 1000000 AND {_EUROS} < 50000000""",
    "q15": f"SELECT {_DAY}, {_SIZES} FROM bid GROUP BY {_DAY}",
    "q16": f"SELECT channel, {_DAY}, MAX(strftime(dateTime, '%H:%M')), {_SIZES} FROM bid GROUP BY channel, {_DAY}",
    "q17": f"""SELECT auction, {_DAY}, {_sizes("*")}, MIN(price), MAX(price),
        CAST(SUM(price) // COUNT(*) AS BIGINT), CAST(SUM(price) AS BIGINT) FROM bid GROUP BY auction, {_DAY}""",
    "q18": "SELECT * FROM bid QUALIFY ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) = 1",
    "q19": """SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid
        QUALIFY place <= 10""",
    "q20": """SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime, b.extra, itemName, description,
        initialBid, reserve, a.dateTime, expires, seller, category, a.extra FROM bid AS b JOIN auction AS a
        ON b.auction = a.id WHERE category = 10""",
    "q21": f"""SELECT auction, bidder, price, channel, CASE WHEN {_NAMED}
        THEN CAST(list_position(['apple', 'google', 'facebook', 'baidu'], lower(channel)) - 1 AS VARCHAR)
        ELSE {_NUMBER} END FROM bid WHERE {_NUMBER} IS NOT NULL OR {_NAMED}""",
    "q22": """SELECT auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5),
        split_part(url, '/', 6) FROM bid""",
}
"""Written by hand for DuckDB, mostly in another way than the queries that they check."""
_AMBIGUOUS: Final = """SELECT COUNT(*) FROM (SELECT *, ROW_NUMBER() OVER w AS place, RANK() OVER w AS rank,
    COUNT(*) OVER (PARTITION BY auction, price) AS equal FROM bid
    WINDOW w AS (PARTITION BY auction ORDER BY price DESC)) WHERE place <= 10 AND equal > 1"""


class Oracle:
    """Knows the rows of each query."""

    def __init__(self, events: Iterable[Event]) -> None:
        import duckdb

        self._connection: duckdb.DuckDBPyConnection = duckdb.connect()
        rows: list[list[tuple[Any, ...]]] = [[], [], []]
        for event in events:
            rows[event.event_type].append(tuple(event.row.values()))
        for table, found in zip(_TABLES, rows, strict=True):
            self._connection.execute(table)
            name = table.split()[2]
            self._connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(found[0]))})", found)
        self._connection.execute(_VIEWS)
        ((ambiguous,),) = self._connection.execute(_AMBIGUOUS).fetchall()
        assert not ambiguous, "equal prices among the ten highest of an auction: take another seed"

    def rows(self, query: str) -> Counter[tuple[Any, ...]]:
        """Returns the rows of a query, each with how often it is there."""
        return Counter(self._connection.execute(QUERIES[query]).fetchall())


def written(bodies: Iterable[bytes], like: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Returns the rows of messages, with times where the wanted rows have times."""
    (first, *_) = like
    times = [isinstance(value, dt.datetime) for value in first]
    found: Counter[tuple[Any, ...]] = Counter()
    for body in bodies:
        values: Sequence[Any] = list(json.loads(body, parse_float=Decimal).values())
        pairs = zip(values, times, strict=True)
        found[tuple(dt.datetime.fromisoformat(value) if is_time else value for value, is_time in pairs)] += 1
    return found
