"""`RestRegistry` behind TLS: whom it trusts, and what it shows of itself."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from rmqio.serde.registry import RegistryUnavailable, SchemaRegistryError, TokenAuth
from tests.helpers.serde.registry_server import FOUND, SCHEMA, SECRET, Connect, Server, Time, serving


@dataclass(frozen=True)
class Certificates:
    """Certificates of an authority, and of server and client that it vouches for: PEM files."""

    authority: str
    server: str
    client: tuple[str, str]
    stranger: str


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificates, is not on PATH")
    folder = tmp_path_factory.mktemp("certificates")

    def run(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    for authority in ("authority", "stranger"):
        names = ["-keyout", f"{authority}.key", "-out", f"{authority}.pem", "-subj", f"/CN={authority}"]
        run("req", "-x509", *key, *names, "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
    for name in ("server", "client"):
        run("req", *key[:-2], "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        run("x509", "-req", "-in", f"{name}.csr", "-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial",
            "-days", "2", "-extfile", "names", "-out", f"{name}.pem")  # fmt: skip
    (folder / "server-both.pem").write_text((folder / "server.key").read_text() + (folder / "server.pem").read_text())
    path = {name: str(folder / name) for name in os.listdir(folder)}
    return Certificates(
        path["authority.pem"], path["server-both.pem"], (path["client.pem"], path["client.key"]), path["stranger.pem"]
    )


@pytest.fixture
def secure(certificates: Certificates) -> Iterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server)
    with serving(lambda request: FOUND, context) as running:
        yield running


def test_a_registry_behind_tls(secure: Server, connect: Connect, certificates: Certificates) -> None:
    assert connect(secure.url, ca_file=certificates.authority, auth=TokenAuth("abc")).by_id(7) == SCHEMA
    assert secure.requests[0].authorization == "Bearer abc"


@pytest.mark.parametrize("trusted", ["none", "stranger", "missing", "name"])
def test_a_registry_that_is_not_trusted_learns_nothing(
    secure: Server, connect: Connect, time: Time, certificates: Certificates, trusted: str
) -> None:
    ca_file = {"none": None, "stranger": certificates.stranger, "missing": "/no/such/file"}.get(
        trusted, certificates.authority
    )
    url = secure.url.replace("127.0.0.1", "localhost") if trusted == "name" else secure.url
    with pytest.raises(SchemaRegistryError, match=r"cannot be reached: .*Check url=, ca_file=") as caught:
        connect(url, ca_file=ca_file, auth=TokenAuth(SECRET)).by_id(7)
    assert not caught.value.retriable
    assert not time.pauses
    assert not secure.requests


def test_a_registry_that_hangs_up_during_the_handshake_is_tried_again(connect: Connect, time: Time) -> None:
    def hang_up() -> None:
        for _ in range(2):
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        with pytest.raises(RegistryUnavailable, match=r"\(2 tries\): SSL(EOF|ZeroReturn)Error"):
            connect(f"https://127.0.0.1:{listening.getsockname()[1]}", retries=1).by_id(7)
        thread.join()


def test_a_client_certificate(connect: Connect, certificates: Certificates) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server)
    context.load_verify_locations(certificates.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    with serving(lambda request: FOUND, context) as mutual:
        registry = connect(mutual.url, ca_file=certificates.authority, client_certificate=certificates.client)
        assert registry.by_id(7) == SCHEMA
        with pytest.raises(SchemaRegistryError):
            connect(mutual.url, ca_file=certificates.authority, retries=0).by_id(7)
        registry.close()
