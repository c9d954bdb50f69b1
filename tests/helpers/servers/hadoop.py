"""A Hadoop file system of its own for tests: a name node and a data node. The servers come from Maven (56 MB, once).

PySpark brings the libraries that they need, in the same version.
"""

from __future__ import annotations

import contextlib
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pyspark

from rmqio.local.processes import LOOPBACK
from tests.helpers.servers.java_server import JavaServer, jars_of
from tests.helpers.servers.ports import reserved_port
from tests.helpers.waiting import at_most

LOCK: Final = "hadoop-3.5.0"
_LIBRARIES: Final = ("hadoop-client-api-", "hadoop-client-runtime-", "slf4j-api-", "log4j-", "jcl-over-slf4j-")
_SERVER: Final = "org.apache.hadoop.hdfs.server"
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class _Node(JavaServer):
    """One of the two. `settings` are Hadoop's, beside those of all nodes."""

    main: str

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__()
        self._settings = {
            "hadoop.tmp.dir": str(self.folder / "data"),
            "dfs.replication": "1",
            "dfs.permissions.enabled": "false",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            **settings,
        }

    def command(self) -> list[str]:
        properties = "".join(
            f"<property><name>{name}</name><value>{value}</value></property>" for name, value in self._settings.items()
        )
        for each in ("core-site.xml", "hdfs-site.xml"):
            (self.folder / each).write_text(f"<configuration>{properties}</configuration>")
        jars = sorted(each for each in Path(pyspark.__file__).parent.glob("jars/*") if each.name.startswith(_LIBRARIES))
        path = ":".join(map(str, (self.folder, *jars_of(LOCK), *jars)))
        return [self.java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path, self.main]


class NameNode(_Node):
    """The name node. `port` is that of WebHDFS, by which Beam's file system talks to it."""

    title = "name node"
    main = f"{_SERVER}.namenode.NameNode"

    def __init__(self) -> None:
        super().__init__({})
        self.address = f"hdfs://{LOOPBACK}:{reserved_port()}"
        self._settings |= {"fs.defaultFS": self.address, "dfs.namenode.http-address": f"{LOOPBACK}:{self.port}"}

    def command(self) -> list[str]:
        command = super().command()
        subprocess.run([*command, "-format", "-nonInteractive"], capture_output=True, check=True, timeout=at_most(120))
        return command

    def answers(self) -> bool:
        """See `JavaServer`."""
        return _status(f"http://{LOOPBACK}:{self.port}/webhdfs/v1/?op=LISTSTATUS") == 200

    def takes_files(self) -> bool:
        """Whether a data node has come, and can be written to."""
        url = f"http://{LOOPBACK}:{self.port}/webhdfs/v1/.ready?op=CREATE&overwrite=true&user.name=tests"
        return _status(url, "PUT") == 201


class DataNode(_Node):
    """The only data node of a name node."""

    title = "data node"
    main = f"{_SERVER}.datanode.DataNode"

    def __init__(self, names: NameNode) -> None:
        super().__init__({})
        self._names = names
        self._settings |= {
            "fs.defaultFS": names.address,
            "dfs.datanode.hostname": LOOPBACK,
            "dfs.datanode.address": f"{LOOPBACK}:0",
            "dfs.datanode.ipc.address": f"{LOOPBACK}:0",
            "dfs.datanode.http.address": f"{LOOPBACK}:{self.port}",
        }

    def answers(self) -> bool:
        """See `JavaServer`."""
        return self._names.takes_files()


class Hadoop(NamedTuple):
    """A file system that runs."""

    names: NameNode
    data: DataNode

    @property
    def flags(self) -> list[str]:
        """Beam's options for it."""
        return [f"--hdfs_host={LOOPBACK}", f"--hdfs_port={self.names.port}", "--hdfs_user=tests"]


@contextlib.contextmanager
def hadoop() -> Iterator[Hadoop]:
    """Starts both nodes."""
    with NameNode() as names, DataNode(names) as data:
        yield Hadoop(names, data)


def _status(url: str, method: str = "GET") -> int:
    """Returns the HTTP status at the end of redirections; 0 if there is none."""
    for _ in range(2):
        request = urllib.request.Request(url, method=method, data=b"" if method == "PUT" else None)
        try:
            with _OPENER.open(request, timeout=at_most(10)) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            if error.code != 307:
                return error.code
            url = error.headers["Location"]  # urllib does not repeat a PUT by itself
        except OSError:
            return 0
    return 0
