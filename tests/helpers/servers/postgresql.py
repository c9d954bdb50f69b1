"""A PostgreSQL server of its own, for tests of tables in a database. Skips where the machine has no PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqio.local.processes.ports import free_port

_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/local/bin", "/usr/bin")


def _program(name: str) -> str:
    found = sorted(each for place in _PLACES for each in Path("/").glob(f"{place[1:]}/{name}"))
    if not found:
        pytest.skip(f"this machine has no {name} of PostgreSQL")
    return str(found[-1])


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """Yields the URL of an empty database `postgres`; the user is `postgres`, without a password."""
    pytest.importorskip("psycopg", reason="tables of databases need the extra 'sql-databases'")
    initdb, server = _program("initdb"), _program("postgres")
    folder = tempfile.mkdtemp(prefix="postgresql-")
    user = None
    if os.geteuid() == 0:  # it refuses to run as root
        user = "nobody"
        shutil.chown(folder, user)
    data, port = f"{folder}/data", free_port()
    command = [initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
    subprocess.run(command, user=user, check=True, capture_output=True, cwd=folder)
    options = ["-D", data, "-p", str(port), "-k", folder, "-h", "127.0.0.1", "-F"]
    with open(f"{folder}/log", "wb") as log:
        process = subprocess.Popen([server, *options], user=user, stdout=log, stderr=log, cwd=folder)
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    try:
        _wait(url, process)
        yield url
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    import psycopg

    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            assert process.poll() is None, "PostgreSQL ended"
            assert time.monotonic() < deadline, "PostgreSQL does not answer"
            time.sleep(0.05)
