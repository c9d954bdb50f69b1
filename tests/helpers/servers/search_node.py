"""A node of OpenSearch or Elasticsearch of its own, for tests. Their files come from Maven (46 and 33 MB, once)."""

from __future__ import annotations

import json
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from rmqio.local.processes import LOOPBACK
from tests.helpers.servers.java_server import SMALL, JavaServer, jars_of, not_as_root
from tests.helpers.servers.ports import reserved_port
from tests.helpers.waiting import at_most

_POLICY = """\
grant codeBase "${codebase.netty-common}" {
  permission java.io.FilePermission "/proc/sys/net/core/somaxconn", "read";
  permission java.net.SocketPermission "*", "accept,connect";
};
grant codeBase "${codebase.netty-transport}" {
  permission java.util.PropertyPermission "sun.nio.ch.bugLevel", "write";
};
"""


class Product(NamedTuple):
    """The differences between the two, which have the same origin."""

    title: str
    version: str
    settings: str
    """Before the names of properties of Java."""
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """In names of files, packages and settings."""
        return self.title.lower()


OPENSEARCH: Final = Product("OpenSearch", "2.19.6", "opensearch")
ELASTICSEARCH: Final = Product("Elasticsearch", "7.17.28", "es", ("-Des.distribution.flavor=oss",))
"""Version 7: Maven has the jars of a whole server."""


class SearchNode(JavaServer):
    """A node without security. `url` is its address."""

    def __init__(self, product: Product) -> None:
        self.product, self.title = product, product.title
        super().__init__()

    @property
    def url(self) -> str:
        """The address of its HTTP interface."""
        return f"http://{LOOPBACK}:{self.port}"

    def command(self) -> Sequence[str]:
        """See `JavaServer`."""
        product = self.product
        lib, module, config = (self.folder / each for each in ("lib", "modules/transport-netty4", "config"))
        for each in (lib, module, config, self.folder / "plugins", self.folder / "logs", self.folder / "tmp"):
            each.mkdir(parents=True)
        for jar in jars_of(f"{product.name}-{product.version}"):
            is_of_module = jar.name.startswith(("netty-", "transport-netty4"))
            shutil.copy(jar, module if is_of_module else lib)
        descriptor = {
            "name": "transport-netty4",
            "description": "HTTP",
            "version": product.version,
            f"{product.name}.version": product.version,
            "java.version": 11,
            "classname": f"org.{product.name}.transport.Netty4Plugin",
            "has.native.controller": "false",
        }
        (module / "plugin-descriptor.properties").write_text(
            "".join(f"{name}={value}\n" for name, value in descriptor.items())
        )
        (module / "plugin-security.policy").write_text(_POLICY)
        settings = {
            "http.host": LOOPBACK,
            "http.port": self.port,
            "transport.host": LOOPBACK,
            "transport.port": reserved_port(),
            "discovery.type": "single-node",
            "cluster.routing.allocation.disk.threshold_enabled": False,
            "node.store.allow_mmap": False,
        }
        (config / f"{product.name}.yml").write_text(
            "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items())
        )
        (config / "log4j2.properties").write_text(
            "appender.console.type = Console\nappender.console.name = console\n"
            "appender.console.layout.type = PatternLayout\nappender.console.layout.pattern = %d %p %c %m%n\n"
            "rootLogger.level = warn\nrootLogger.appenderRef.console.ref = console\n"
        )
        of = f"-D{product.settings}"
        options = [
            *SMALL, "-Djava.security.manager=allow", f"-Djava.io.tmpdir={self.folder}/tmp", "-Dlog4j2.disable.jmx=true",
            *product.options, f"{of}.path.home={self.folder}", f"{of}.path.conf={config}", f"{of}.bundled_jdk=false",
            f"{of}.distribution.type=tar",
        ]  # fmt: skip
        main = f"org.{product.name}.bootstrap.{product.title}"
        folders = ["env", f"LIBFFI_TMPDIR={self.folder}/tmp"]  # Elasticsearch insists on it
        command = [*folders, self.java, *options, "-cp", f"{lib}{os.sep}*", main]
        return not_as_root(self.folder, command)

    def answers(self) -> bool:
        """See `JavaServer`."""
        try:
            return bool(self.ask("/_cluster/health?wait_for_status=yellow&timeout=1s")["status"] in ("yellow", "green"))
        except (OSError, ValueError):
            return False

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """The answer to a request. Raises `urllib.error.HTTPError`."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        with opener.open(request, timeout=at_most(30)) as answer:
            return json.loads(answer.read() or b"null")
