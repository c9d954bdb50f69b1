"""Audits of topics in memory."""

from __future__ import annotations

import argparse
import json
from typing import Any

import pytest

from rmqio.audit import command
from rmqio.cli.main import make_parser, parse
from rmqio.testing import InMemoryClientFactory, InMemoryCluster

SECOND = 1_000


def arguments(*words: str) -> argparse.Namespace:
    line = ["audit", "--name_server=h:1", "--from_topic=source", "--to_topic=sink", *words]
    return parse(make_parser(), line)


def run(cluster: InMemoryCluster, *words: str) -> int:
    return command.run(arguments(*words), client_factory=InMemoryClientFactory(cluster.name))


def report(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], *words: str, status: int = 1
) -> dict[str, Any]:
    assert run(cluster, "--json", *words) == status
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def send(cluster: InMemoryCluster, topic: str, number: int, *, ms: int = 0, queue_id: int = 0, **more: Any) -> Any:
    body = json.dumps({"order": {"id": number}, "name": f"n{number}"}).encode()
    given = {"keys": (f"k{number}",), "properties": {"UNIQ_KEY": f"ID{number}", "own": f"p{number}"}, **more}
    return cluster.append(topic, body, queue_id=queue_id, store_ms=1_000_000 + ms, **given)
