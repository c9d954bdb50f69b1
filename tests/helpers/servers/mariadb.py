"""A MariaDB server of its own, for tests. Where the machine has none, Debian's packages are unpacked into the cache."""

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
from tests.helpers.servers.debian import unpacked
from tests.helpers.servers.ports import reserved_port

_PACKAGES = ("mariadb-server-core", "mariadb-server", "libaio1", "liburing2")


def _folder() -> Path:
    """The folder below which the server is, as below /."""
    if Path("/usr/sbin/mariadbd").exists():
        return Path("/")
    return unpacked(*_PACKAGES)


@contextlib.contextmanager
def mariadb() -> Iterator[str]:
    """Yields the URL of an empty database `shop`; the user is `root`, without a password."""
    with mariadb_server() as server:
        yield server.url


@contextlib.contextmanager
def mariadb_server() -> Iterator[Server]:
    """Yields a server with an empty database `shop`, to be killed."""
    pytest.importorskip("pymysql", reason="tables of databases need the extra 'sql-databases'")
    root = _folder()
    folder = Path(tempfile.mkdtemp(prefix="mariadb-"))
    user = "nobody" if os.geteuid() == 0 else None  # it refuses to run as root
    if user is not None:
        shutil.chown(folder, user)
        folder.chmod(0o755)
    libraries = ":".join(str(each) for each in (root / "usr/lib").glob("*-linux-gnu"))
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries}
    # A user other than root may not be able to read the cache of root: the server's files are copied beside the data.
    program, messages = folder / "mariadbd", folder / "share"
    shutil.copy(root / "usr/sbin/mariadbd", program)
    shutil.copytree(root / "usr/share/mysql", messages)
    copied = folder / "lib"
    copied.mkdir()
    for each in (root / "usr/lib").glob("*-linux-gnu/lib*.so*"):
        if root != Path("/") and not each.is_dir():
            shutil.copy(each, copied / each.name)
    environment["LD_LIBRARY_PATH"] = str(copied)
    data, port = folder / "data", reserved_port()
    common = [
        str(program), "--no-defaults", f"--datadir={data}", f"--lc-messages-dir={messages}", f"--tmpdir={folder}",
        f"--character-sets-dir={messages}/charsets", "--innodb-buffer-pool-size=64M",
        "--innodb-flush-log-at-trx-commit=2",  # what is committed survives a kill, if not a loss of power
        f"--plugin-dir={folder}",
    ]  # fmt: skip
    try:
        data.mkdir()
        if user is not None:
            shutil.chown(data, user)
        scripts = ("mysql_system_tables.sql", "mysql_system_tables_data.sql")
        text = "CREATE DATABASE mysql;\nUSE mysql;\n" + "\n".join((messages / each).read_text() for each in scripts)
        with open(folder / "log", "wb") as log:
            begun = [*common, "--bootstrap", "--skip-grant-tables"]
            made = subprocess.run(
                begun, input=text.encode(), user=user, env=environment, cwd=folder, stdout=log, stderr=log, check=False
            )
            assert made.returncode == 0, (folder / "log").read_text()[-2000:]
        options = [f"--port={port}", "--bind-address=127.0.0.1", f"--socket={folder}/socket", "--skip-grant-tables",
                   "--skip-networking=0"]  # fmt: skip

        def launch() -> subprocess.Popen[bytes]:
            with open(folder / "log", "ab") as log:
                command = [*common, *options]
                return subprocess.Popen(command, user=user, env=environment, cwd=folder, stdout=log, stderr=log)

        url = f"mysql://root@127.0.0.1:{port}/shop?charset=utf8mb4"
        server = Server(url, launch, lambda: _answers(port))
        try:
            server.start(lambda: (folder / "log").read_text()[-2000:])
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _answers(port: int) -> bool:
    import pymysql  # type: ignore[import-untyped]

    try:
        with pymysql.connect(host="127.0.0.1", port=port, user="root") as connection:
            connection.cursor().execute("CREATE DATABASE IF NOT EXISTS shop CHARACTER SET utf8mb4")
    except pymysql.OperationalError:
        return False
    return True
