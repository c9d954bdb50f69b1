"""A proxy of RocketMQ 5 in front of a local broker, for tests. Its files come from Maven (103 MB, once)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from rmqio.client.admin import Admin
from rmqio.errors import RmqioError
from rmqio.local.processes import LOOPBACK
from rmqio.options import ClientOptions
from tests.helpers.servers.java_server import SMALL, JavaServer, jars_of
from tests.helpers.servers.ports import reserved_port


class Proxy(JavaServer):
    """A proxy in cluster mode. Its remoting port takes the place of name server and brokers.

    Args:
      name_server: of the brokers behind it.
      cluster: the name of their cluster.
      topic: a topic that exists, by which the start is seen.
    """

    title = "RocketMQ proxy"
    minimum_java = 11

    def __init__(self, name_server: str, cluster: str, topic: str) -> None:
        super().__init__()
        self._name_server = name_server
        self._cluster = cluster
        self._topic = topic

    @property
    def address(self) -> str:
        """The address of the remoting protocol."""
        return f"{LOOPBACK}:{self.port}"

    def command(self) -> Sequence[str]:
        """See `JavaServer`."""
        settings = {
            "rocketMQClusterName": self._cluster,
            "namesrvAddr": self._name_server,
            "proxyName": "proxy",
            "localServeAddr": LOOPBACK,
            "remotingAccessAddr": LOOPBACK,
            "remotingListenPort": self.port,
            "grpcServerPort": reserved_port(),
            "heartbeatSyncerTopicClusterName": self._cluster,
        }
        file = self.folder / "rmq-proxy.json"
        file.write_text(json.dumps(settings))
        path = os.pathsep.join(map(str, jars_of("rocketmq-proxy-5.5.0")))
        home = [f"-DRMQ_PROXY_HOME={self.folder}", f"-Duser.home={self.folder}"]
        main = ["org.apache.rocketmq.proxy.ProxyStartup", "-pm", "cluster", "-pc", str(file)]
        return [self.java, *SMALL, *home, "-cp", path, *main]

    def answers(self) -> bool:
        """See `JavaServer`."""
        try:
            with Admin(ClientOptions(self.address, request_timeout_ms=1_000, max_retries=0)) as admin:
                admin.wait_for_route(self._topic, {})
        except RmqioError:
            return False
        return True
