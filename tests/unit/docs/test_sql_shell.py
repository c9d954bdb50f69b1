"""The session that docs/sql/shell.md shows is what the shell prints."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.errors import SqlError
from rmqio.sql.shell.session import End, Session, is_complete
from rmqio.testing import InMemoryClientFactory
from tests.helpers.transforms.reading import clean_cluster

PAGE: Final = Path(__file__).parents[3] / "docs/sql/shell.md"
STORED_MS: Final = 1_706_702_400_000
ROWS: Final = [(1, "Ann", 5), (2, "王小明", 12.5), (3, "Ann", 99.99), (4, "Ann", 10), (5, None, 10.01), (6, "Ann", 11)]


def test_the_session_is_as_shown() -> None:
    (shown,) = re.findall(r"^```text\n(\$ rmqio sql.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    wanted = shown.splitlines()[1:]
    found: list[str] = []
    with clean_cluster() as cluster:
        cluster.create_topic("orders", 2)
        for number, customer, amount in ROWS:
            body = json.dumps({"id": number, "customer": customer, "amount": amount}).encode()
            cluster.append("orders", body, queue_id=number % 2, store_ms=STORED_MS + number * 1000)
        session = Session(
            argparse.Namespace(name_server="n", start=None, stop=None, runner="DirectRunner"),
            lambda text: found.extend(line.rstrip() for line in text.splitlines()),
            lambda text: found.extend(f"rmqio sql: {text}".splitlines()),
            client_factory=InMemoryClientFactory(cluster.name),
        )
        try:
            statement = ""
            for line in wanted:
                if line.startswith(("sql> ", "...> ")):
                    found.append(line)
                    statement += line[5:] + "\n"
                    if is_complete(statement):
                        _run(session, statement, found)
                        statement = ""
        except End:
            pass
        finally:
            session.close()
    assert re.sub(r"\d+\.\d s", "0.1 s", "\n".join(found)) == "\n".join(wanted)


def _run(session: Session, statement: str, found: list[str]) -> None:
    try:
        session.run(statement.rstrip("\n"))
    except SqlError as error:
        found.extend(f"rmqio sql: {error}".splitlines())
