"""One `RestRegistry` in several threads, and on both sides of a fork."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rmqio.serde.registry import MemoryRegistry, RegistryUnavailable, RestRegistry
from rmqio.serde.registry.http import Timing
from tests.helpers.serde.registry_server import FOUND, SCHEMA, Connect, Server, answer, confluent
from tests.helpers.waiting import at_most


def test_closing_ends_the_pauses_of_other_threads(server: Server) -> None:
    server.script(answer(503, {}, Retry_After="3600"))
    pausing = threading.Event()

    def wait(closed: threading.Event, seconds: float) -> bool:
        pausing.set()
        return closed.wait(60 * seconds)

    registry = RestRegistry(server.url, timing=Timing(wait=wait))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(registry.by_id, 7)
        assert pausing.wait(at_most(60))
        registry.close()
        with pytest.raises(RegistryUnavailable, match="was closed between two tries"):
            asked.result()
    server.script(FOUND)
    assert registry.by_id(7) == SCHEMA  # it opens anew
    registry.close()
    registry.close()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # that threads run while it forks is the point
def test_a_fork_has_connections_of_its_own(server: Server) -> None:
    """The child's requests would otherwise mix with the parent's on one connection."""
    registry = RestRegistry(server.url)
    registry.by_id(1)

    def ask(numbers: range) -> None:
        code = 1
        try:
            code = 0 if all(registry.by_id(number) == SCHEMA for number in numbers) else 2
        finally:
            os._exit(code)

    # Held as by another thread of the parent in the moment of the fork: nobody would ever release it in the child.
    with registry._http.connections.lock:
        children = [
            multiprocessing.get_context("fork").Process(target=ask, args=(range(start, start + 20),), daemon=True)
            for start in (100, 200)
        ]
        for child in children:
            child.start()
    assert all(registry.by_id(number) == SCHEMA for number in range(300, 320))
    for child in children:
        child.join(at_most(60))
    assert [child.exitcode for child in children] == [0, 0]
    assert len(server.requests) == 61
    registry.close()


def test_threads_share_a_registry(server: Server, connect: Connect) -> None:
    kept = MemoryRegistry()
    schemas = [f'{{"type":"fixed","name":"F","size":{size}}}' for size in range(1, 40)]
    ids = [kept.register("fixed", schema) for schema in schemas]
    server.handle = confluent(kept)
    registry = connect()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(registry.by_id, ids * 5))
    assert found == schemas * 5
    assert len(server.requests) <= 8 * len(ids)
