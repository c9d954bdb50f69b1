"""A real broker and name server that know their users and speak TLS, with certificates of our own authority."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trustme

from rmqio.client.admin import Admin
from rmqio.client.connection import Connection, secured
from rmqio.client.environment import Environment
from rmqio.local import LocalRocketMQ
from rmqio.local.config import Config
from rmqio.options import ClientOptions
from rmqio.security import FileCredentials, Security, Tls
from rmqio.wire.command import Command
from tests.helpers.servers.certificates import chain_of, key_of
from tests.helpers.waiting import needed

ACCESS_KEY: Final = "root-of-the-tests"
SECRET: Final = "rmqio-secret-5f2c9a71"
"""A secret that tests search for wherever it must not appear."""
_AUTH: Final = "org.apache.rocketmq.auth"


@dataclass(frozen=True)
class Guarded:
    """The broker, and the files that a client needs."""

    broker: LocalRocketMQ
    ca_file: str
    """The authority that signed the certificates of both servers."""
    client_file: str
    """Our certificate and its key, which both servers request."""
    other_ca_file: str
    """An authority that signed none of their certificates."""
    credentials_file: str

    @property
    def tls(self) -> Tls:
        return Tls(ca_file=self.ca_file, certificate_file=self.client_file)

    @property
    def security(self) -> Security:
        """The security settings of a client that may do everything."""
        return Security(FileCredentials(self.credentials_file), self.tls)

    def options(self, security: Security | None = None, **more: Any) -> ClientOptions:
        return ClientOptions(self.broker.name_server, security=security or self.security, **more)

    def create_user(self, name: str, secret: str, **rights: tuple[str, ...]) -> None:
        """Creates a user with these rights only. `rights`: from resource, with `__` in place of the colon, to actions.

        The client has no such requests, so they are made here from outside.
        """
        user = {"username": name, "password": secret, "userType": "Normal"}
        entries = [
            {"resource": resource.replace("__", ":"), "actions": list(actions), "sourceIps": [], "decision": "Allow"}
            for resource, actions in rights.items()
        ]
        acl = {"subject": f"User:{name}", "policies": [{"policyType": "CUSTOM", "entries": entries}]}
        connection = Connection(self.broker.broker, environment=secured(Environment(), self.security))
        try:
            for code, ext, body in ((3001, {"username": name}, user), (3006, {"subject": f"User:{name}"}, acl)):
                answer = connection.request(Command(code, ext, json.dumps(body).encode()), 5_000)
                assert answer.code == 0, answer.remark
        finally:
            connection.close()

    def create_topic(self, topic: str, queues: int = 1) -> str:
        admin = Admin(self.options())
        try:
            admin.create_topic(topic, queues=queues)
        finally:
            admin.close()
        return topic


def credentials_file(path: Path, access_key: str, secret_key: str, token: str | None = None) -> str:
    lines = [f"accessKey = {access_key}", f"secretKey = {secret_key}"]
    path.write_text("\n".join([*lines, *([] if token is None else [f"securityToken = {token}"])]) + "\n")
    path.chmod(0o600)
    return str(path)


@contextmanager
def guarded_broker(folder: Path) -> Iterator[Guarded]:
    """Starts the broker. It also accepts plain text, RocketMQ's default, so the local broker can check if it is up."""
    ca, other = trustme.CA(), trustme.CA()
    ca_file, other_file = str(folder / "ca.pem"), str(folder / "other-ca.pem")
    ca.cert_pem.write_to_path(ca_file)
    other.cert_pem.write_to_path(other_file)
    server, client = ca.issue_cert("127.0.0.1", "localhost"), ca.issue_cert("client@example.com")
    client.private_key_and_cert_chain_pem.write_to_path(str(folder / "client.pem"))
    (folder / "server.crt").write_bytes(chain_of(server))
    (folder / "server.key").write_bytes(key_of(server))
    (folder / "tls.properties").write_text(
        f"tls.test.mode.enable=false\ntls.server.keyPath={folder}/server.key\n"
        f"tls.server.certPath={folder}/server.crt\ntls.server.need.client.auth=require\n"
        f"tls.server.authClient=true\ntls.server.trustCertPath={ca_file}\n"
    )
    config: Config = {
        "authenticationEnabled": True,
        "authorizationEnabled": True,
        "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
        "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
        "initAuthenticationUser": json.dumps({"username": ACCESS_KEY, "password": SECRET}),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": ACCESS_KEY, "secretKey": SECRET}),
    }
    credentials = credentials_file(folder / "credentials", ACCESS_KEY, SECRET)
    with (
        LocalRocketMQ(
            name="guarded",
            broker_config=config,
            broker_heap_mb=256,
            tls_config=folder / "tls.properties",
            credentials=(ACCESS_KEY, SECRET),
        ) as broker,
        needed(broker.pid),
    ):
        yield Guarded(broker, ca_file, str(folder / "client.pem"), other_file, credentials)
