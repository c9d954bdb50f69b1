"""An OpenSearch node of its own, for tests. Its files come from Maven (46 MB, once)."""

from __future__ import annotations

import json
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from rmqio.local.processes.ports import LOOPBACK, free_port
from tests.helpers.servers.java_server import SMALL, JavaServer, jars_of, not_as_root

_VERSION = "2.19.6"
_DESCRIPTOR = f"""\
name=transport-netty4
description=HTTP
version={_VERSION}
opensearch.version={_VERSION}
java.version=11
classname=org.opensearch.transport.Netty4Plugin
has.native.controller=false
"""
_POLICY = "grant { permission java.security.AllPermission; };\n"


class OpenSearch(JavaServer):
    """A node without security. `url` is its address."""

    title = "OpenSearch"

    @property
    def url(self) -> str:
        """The address of its HTTP interface."""
        return f"http://{LOOPBACK}:{self.port}"

    def command(self) -> Sequence[str]:
        """See `JavaServer`."""
        lib, module, config = (self.folder / each for each in ("lib", "modules/transport-netty4", "config"))
        for each in (lib, module, config, self.folder / "plugins", self.folder / "logs", self.folder / "tmp"):
            each.mkdir(parents=True)
        for jar in jars_of(f"opensearch-{_VERSION}"):
            is_of_module = jar.name.startswith(("netty-", "transport-netty4"))
            shutil.copy(jar, module if is_of_module else lib)
        (module / "plugin-descriptor.properties").write_text(_DESCRIPTOR)
        (module / "plugin-security.policy").write_text(_POLICY)
        settings = {
            "http.host": LOOPBACK,
            "http.port": self.port,
            "transport.host": LOOPBACK,
            "transport.port": free_port(),
            "discovery.type": "single-node",
            "cluster.routing.allocation.disk.threshold_enabled": False,
            "node.store.allow_mmap": False,
        }
        (config / "opensearch.yml").write_text(
            "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items())
        )
        (config / "log4j2.properties").write_text(
            "appender.console.type = Console\nappender.console.name = console\n"
            "appender.console.layout.type = PatternLayout\nappender.console.layout.pattern = %d %p %c %m%n\n"
            "rootLogger.level = warn\nrootLogger.appenderRef.console.ref = console\n"
        )
        options = [
            *SMALL, "-Djava.security.manager=allow", f"-Djava.io.tmpdir={self.folder}/tmp", "-Dlog4j2.disable.jmx=true",
            f"-Dopensearch.path.home={self.folder}", f"-Dopensearch.path.conf={config}",
            "-Dopensearch.bundled_jdk=false", "-Dopensearch.distribution.type=tar",
        ]  # fmt: skip
        command = [self.java, *options, "-cp", f"{lib}{os.sep}*", "org.opensearch.bootstrap.OpenSearch"]
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
        with opener.open(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")
