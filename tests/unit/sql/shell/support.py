"""A session on a cluster in memory, and what it prints."""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.errors import SqlError
from rmqio.sql.scripts.catalog_file import CatalogFile
from rmqio.sql.shell.session import Session
from rmqio.testing import InMemoryClientFactory, InMemoryCluster

ORDERS = "CREATE TABLE orders (id BIGINT, customer STRING) WITH ('topic' = 'orders', 'consumerGroup' = 'g'{more});"
STORED_MS = 1_700_000_000_000
OPEN: list[Session] = []
LATEST = "SET 'scan.bounded.mode' = 'latest';"


def put(cluster: InMemoryCluster, number: int, queue: int, topic: str = "orders", **fields: Any) -> None:
    body = json.dumps({"id": number, "customer": f"c{number % 3}"}).encode()
    cluster.append(topic, body, queue_id=queue, store_ms=STORED_MS + number, **fields)


def client_of(cluster: InMemoryCluster) -> Any:
    return contextlib.closing(InMemoryClientFactory(cluster.name).queue_client())


class Shell:
    """A session, and what it has printed."""

    def __init__(self, cluster: InMemoryCluster, catalog: Path | None = None, **given: Any) -> None:
        self.lines: list[str] = []
        self.notes: list[str] = []
        arguments = argparse.Namespace(**{"name_server": "n", "start": None, "stop": None, "runner": "r"} | given)
        file = None if catalog is None else CatalogFile(catalog)
        self.session = Session(
            arguments,
            lambda text: self.lines.extend(text.splitlines()),
            self.notes.append,
            file,
            client_factory=InMemoryClientFactory(cluster.name),
        )
        self.session.load()
        OPEN.append(self.session)

    def __call__(self, text: str) -> list[str]:
        """Runs statements and returns the lines that they print, without blanks at the end of lines."""
        self.lines.clear()
        self.notes.clear()
        self.session.run(text)
        return [line.rstrip() for line in self.lines]

    def error(self, text: str) -> str:
        with pytest.raises(SqlError) as caught:
            self(text)
        return str(caught.value)

    def rows(self, text: str) -> list[tuple[str, ...]]:
        """Returns the cells of the rows that statements print."""
        names, *lines = (tuple(line.split()) for line in self(text))
        return [cells for cells in lines if cells != names and set("".join(cells)) != {"-"}]
