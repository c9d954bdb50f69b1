"""A PostgreSQL server of its own, for tests of tables in a database. Skips where the machine has no PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.servers.database import Server
from tests.helpers.servers.ports import reserved_port

_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/local/bin", "/usr/bin")


def _program(name: str) -> str:
    found = sorted(each for place in _PLACES for each in Path("/").glob(f"{place[1:]}/{name}"))
    if not found:
        pytest.skip(f"this machine has no {name} of PostgreSQL")
    return str(found[-1])


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """Yields the URL of an empty database `postgres`; the user is `postgres`, without a password."""
    with postgresql_server() as server:
        yield server.url


@contextlib.contextmanager
def postgresql_server() -> Iterator[Server]:
    """Yields a server with an empty database `postgres`, to be killed."""
    pytest.importorskip("psycopg", reason="tables of databases need the extra 'sql-databases'")
    initdb, server = _program("initdb"), _program("postgres")
    folder = tempfile.mkdtemp(prefix="postgresql-")
    user = None
    if os.geteuid() == 0:  # it refuses to run as root
        user = "nobody"
        shutil.chown(folder, user)
    data, port = f"{folder}/data", reserved_port()
    command = [initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
    subprocess.run(command, user=user, check=True, capture_output=True, cwd=folder)
    options = ["-D", data, "-p", str(port), "-k", folder, "-h", "127.0.0.1", "-F"]

    def launch() -> subprocess.Popen[bytes]:
        with open(f"{folder}/log", "ab") as log:
            return subprocess.Popen([server, *options], user=user, stdout=log, stderr=log, cwd=folder)

    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    found = Server(url, launch, lambda: _answers(url))
    try:
        found.start(lambda: Path(f"{folder}/log").read_text()[-2000:])
        yield found
    finally:
        found.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _answers(url: str) -> bool:
    import psycopg

    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True
