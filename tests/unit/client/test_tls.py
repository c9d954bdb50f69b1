"""The TLS transport against a real server of Python's own `ssl`, on loopback."""

from __future__ import annotations

import hashlib
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from cryptography.hazmat.primitives.serialization import load_pem_private_key as load_key

from rmqio.client.transport import TlsTransport, Transport, UntrustedPeer, connect_tcp, context_of, tls_over
from rmqio.errors import LocalError, RequestTimeout, TransportError
from rmqio.security import Tls
from rmqio.testing import ManualClock
from tests.helpers.waiting import at_most, until

Serve = Callable[[ssl.SSLSocket], object]


@dataclass
class Authority:
    """Certificates in files."""

    folder: Path
    ca: trustme.CA

    @property
    def tls(self) -> Tls:
        return Tls(ca_file=str(self.folder / "ca.pem"))

    def certificate(self, name: str) -> str:
        path = self.folder / f"{name}.pem"
        self.ca.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(str(path))
        return str(path)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    found = Authority(tmp_path_factory.mktemp("tls"), trustme.CA())
    found.ca.cert_pem.write_to_path(str(found.folder / "ca.pem"))
    return found


class Server:
    """Takes connections, one after the other, and serves them until it is closed."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.serve: Serve = echo
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            peer.settimeout(at_most(10))
            with peer:
                try:
                    if self._context is None:
                        self.serve(peer)  # type: ignore[arg-type]
                    else:
                        with self._context.wrap_socket(peer, server_side=True) as stream:
                            self.serve(stream)
                except OSError as error:
                    self.failures.append(str(error))

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(at_most(10))
        assert not self._thread.is_alive()


def echo(stream: ssl.SSLSocket) -> None:
    while data := stream.recv(65_536):
        stream.sendall(data)


def context_for(authority: Authority, *names: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.ca.issue_cert(*names).configure_cert(context)
    return context


@pytest.fixture
def server(authority: Authority) -> Iterator[Server]:
    found = Server(context_for(authority, "127.0.0.1", "broker.example.com"))
    yield found
    found.close()


@pytest.fixture
def plain() -> Iterator[Server]:
    found = Server(None)
    yield found
    found.close()


def connected(server: Server, tls: Tls, timeout_ms: int = 5_000) -> Transport:
    transport = tls_over(connect_tcp, tls)(server.address, timeout_ms)
    try:
        assert transport.wait_connected(timeout_ms)
    except BaseException:
        transport.close()
        raise
    return transport


def receive(transport: Transport, size: int) -> bytes:
    """Returns so many bytes; fewer, if the peer closes."""
    found = b""

    def is_all() -> bool:
        nonlocal found
        data = transport.recv(262_144, 1_000)
        found += data or b""
        return data == b"" or len(found) >= size

    until(is_all, f"{size} bytes", progress=lambda: len(found), details=lambda: len(found), pause_s=0)
    return found


def test_bytes_there_and_back(server: Server, authority: Authority) -> None:
    transport = connected(server, authority.tls)
    transport.send_all(b"hello", 1_000)
    assert receive(transport, 5) == b"hello"
    transport.send_parts(b"head of ", b"a body", 1_000)
    assert receive(transport, 14) == b"head of a body"
    assert transport.recv(100, 0) is None
    assert transport.fileno() >= 0
    assert "TLSv1.3 over <TcpTransport" in repr(transport)
    transport.close()
    transport.close()
    with pytest.raises(TransportError):
        transport.recv(100, 0)


def test_one_thread_reads_while_another_writes(server: Server, authority: Authority) -> None:
    """Megabytes in both directions at once, which is more than the buffers on the way hold."""
    transport = connected(server, authority.tls)
    size = 12_000_000
    data = hashlib.shake_128(b"seed").digest(size)

    def write() -> None:
        for begin in range(0, size, 700_000):
            transport.send_all(data[begin : begin + 700_000], 20_000)

    thread = threading.Thread(target=write)
    thread.start()
    found = receive(transport, size)
    thread.join()
    assert hashlib.sha256(found).digest() == hashlib.sha256(data).digest()
    transport.close()


def test_what_was_received_does_not_stay_where_nobody_looks(server: Server, authority: Authority) -> None:
    """A waiter on the descriptor hears of bytes from the network only, so everything decrypted is handed out."""
    transport = connected(server, authority.tls)
    transport.send_all(b"x" * 100_000, 1_000)
    arrived = select.poll()
    arrived.register(transport.fileno(), select.POLLIN)
    found = b""
    while len(found) < 100_000:
        assert arrived.poll(5_000), f"{len(found)} of 100,000 bytes came, and no more are announced"
        found += transport.recv(1_000, 0) or b""
    assert found == b"x" * 100_000
    transport.close()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ca_file": None}, "unable to get local issuer certificate"),
        ({"server_name": "other.example.com"}, "not valid for 'other.example.com'"),
    ],
)
def test_a_certificate_that_proves_nothing(
    server: Server, authority: Authority, changes: dict[str, str | None], reason: str
) -> None:
    with pytest.raises(UntrustedPeer, match=reason) as raised:
        connected(server, replace(authority.tls, **changes))  # type: ignore[arg-type]
    assert not raised.value.retriable


def test_an_expired_certificate(authority: Authority) -> None:
    import datetime as dt

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    authority.ca.issue_cert("127.0.0.1", not_before=past, not_after=past + dt.timedelta(days=1)).configure_cert(context)
    server = Server(context)
    with pytest.raises(UntrustedPeer, match="certificate has expired"):
        connected(server, authority.tls)
    server.close()


def test_the_name_asked_for_goes_before_the_host(server: Server, authority: Authority) -> None:
    connected(server, replace(authority.tls, server_name="broker.example.com")).close()


def test_insecure_takes_anybody(server: Server) -> None:
    transport = connected(server, Tls(insecure=True))
    transport.send_all(b"hello", 1_000)
    assert receive(transport, 5) == b"hello"
    transport.close()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_old_versions_of_tls_are_refused(authority: Authority) -> None:
    context = context_for(authority, "127.0.0.1")
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    server = Server(context)
    with pytest.raises(TransportError, match=r"with TLS: .*(PROTOCOL|VERSION|HANDSHAKE)"):
        connected(server, authority.tls)
    server.close()


def test_a_server_that_wants_a_certificate_of_ours(authority: Authority) -> None:
    context = context_for(authority, "127.0.0.1")
    context.verify_mode = ssl.CERT_REQUIRED
    authority.ca.configure_trust(context)
    server = Server(context)
    transport = connected(server, authority.tls)  # with TLS 1.3 it says so only afterwards
    with pytest.raises(TransportError, match="requires a client certificate"):
        receive(transport, 1)
    transport.close()
    transport = connected(server, replace(authority.tls, certificate_file=authority.certificate("client")))
    transport.send_all(b"hello", 1_000)
    assert receive(transport, 5) == b"hello"
    transport.close()
    server.close()


def test_a_peer_that_speaks_no_tls(plain: Server, authority: Authority) -> None:
    plain.serve = lambda stream: stream.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(TransportError, match="with TLS: WRONG_VERSION_NUMBER"):
        connected(plain, authority.tls)
    plain.serve = lambda stream: None
    with pytest.raises(TransportError, match="Does it speak TLS"):
        connected(plain, authority.tls)


def test_a_peer_that_resets_the_connection(plain: Server, authority: Authority) -> None:
    def reset(stream: ssl.SSLSocket) -> None:
        stream.recv(1)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    plain.serve = reset
    with pytest.raises(TransportError, match="Does it speak TLS"):
        connected(plain, authority.tls)


def test_a_peer_that_says_nothing(plain: Server, authority: Authority) -> None:
    done = threading.Event()
    plain.serve = lambda stream: done.wait()
    clock, context = ManualClock(), context_of(authority.tls)
    tcp = connect_tcp(plain.address, 300)
    transport = TlsTransport(tcp, plain.address, context, authority.tls, 300, clock=clock.monotonic)
    until(lambda: transport.wait_connected(0) or transport.connects_by_reading, "a connection without TLS")
    assert not transport.wait_connected(0)
    clock.advance(0.3)
    with pytest.raises(RequestTimeout, match="no TLS answer within 300 ms"):
        transport.wait_connected(5_000)
    done.set()
    transport.close()


def test_certificates_that_are_replaced_are_used_from_the_next_connection_on(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """While half of a file is written, the one of before is used on."""
    server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_context.load_cert_chain(authority.certificate("127.0.0.1"))
    server_context.load_verify_locations(authority.tls.ca_file)
    server_context.verify_mode = ssl.CERT_REQUIRED
    names: list[str] = []

    def serve(stream: ssl.SSLSocket) -> None:
        names.append(stream.getpeercert()["subjectAltName"][0][1])  # type: ignore[index, arg-type]
        echo(stream)

    server = Server(server_context)
    server.serve = serve
    mine = tmp_path / "mine.pem"
    mine.write_bytes(Path(authority.certificate("first.example")).read_bytes())
    connect = tls_over(connect_tcp, replace(authority.tls, certificate_file=str(mine)))

    def name_seen() -> str:
        transport = connect(server.address, 5_000)
        assert transport.wait_connected(5_000)
        transport.send_all(b"hello", 5_000)
        assert receive(transport, 5) == b"hello"
        transport.close()
        return names[-1]

    assert name_seen() == "first.example"
    mine.write_bytes(b"-----BEGIN")
    assert name_seen() == "first.example"
    assert "keeping the previous files" in caplog.text
    mine.write_bytes(Path(authority.certificate("second.example")).read_bytes())
    assert name_seen() == "second.example"
    server.close()


def test_nobody_listens(authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    transport = tls_over(connect_tcp, authority.tls)(address, 1_000)
    with pytest.raises(TransportError, match="Connection refused"):
        transport.wait_connected(1_000)
    transport.close()


@pytest.mark.parametrize("with_goodbye", [True, False])
def test_the_end_of_the_stream(server: Server, authority: Authority, with_goodbye: bool) -> None:
    def serve(stream: ssl.SSLSocket) -> None:
        stream.sendall(b"the last words")
        if with_goodbye:
            stream.unwrap()
        else:
            socket.socket.shutdown(stream, socket.SHUT_RDWR)

    server.serve = serve
    transport = connected(server, authority.tls)
    assert receive(transport, 1_000) == b"the last words"
    assert transport.recv(100, 100) == b""
    transport.close()


def test_bytes_changed_on_the_way_break_the_connection(server: Server, authority: Authority) -> None:
    server.serve = lambda stream: socket.socket.send(stream, b"\x17\x03\x03\x00\x20" + b"x" * 32)
    transport = connected(server, authority.tls)
    with pytest.raises(TransportError, match=r"reading from .*(BAD_RECORD_MAC|DECRYPTION_FAILED)"):
        receive(transport, 1)
    transport.close()


def test_files_that_will_not_do(tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LocalError, match="cannot read the certificate authorities in"):
        context_of(Tls(ca_file=str(tmp_path / "none.pem")))
    (tmp_path / "empty.pem").write_text("nothing")
    with pytest.raises(LocalError, match="cannot read the certificate authorities in"):
        context_of(Tls(ca_file=str(tmp_path / "empty.pem")))
    with pytest.raises(LocalError, match="cannot use the certificate in"):
        context_of(Tls(certificate_file=str(tmp_path / "empty.pem")))
    client = authority.ca.issue_cert("client")
    key = load_key(client.private_key_pem.bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"a-key-password"))
    (tmp_path / "key.pem").write_bytes(locked)
    (tmp_path / "client.pem").write_bytes(client.cert_chain_pems[0].bytes())
    files = Tls(certificate_file=str(tmp_path / "client.pem"), key_file=str(tmp_path / "key.pem"))
    with pytest.raises(LocalError, match="has a password: set key_password_variable"):
        context_of(files)
    with pytest.raises(LocalError, match="KEY_PASSWORD is not set"):
        context_of(replace(files, key_password_variable="KEY_PASSWORD"))
    monkeypatch.setenv("KEY_PASSWORD", "wrong")
    with pytest.raises(LocalError, match="cannot use the certificate"):
        context_of(replace(files, key_password_variable="KEY_PASSWORD"))
    monkeypatch.setenv("KEY_PASSWORD", "a-key-password")
    assert context_of(replace(files, key_password_variable="KEY_PASSWORD")).check_hostname


def test_it_verifies_unless_told_otherwise() -> None:
    assert (context_of(Tls()).verify_mode, context_of(Tls()).check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context_of(Tls()).minimum_version >= ssl.TLSVersion.TLSv1_2
