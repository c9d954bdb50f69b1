"""Locks, and fetching by them from a repository on the loopback interface."""

from __future__ import annotations

import hashlib
import http.server
import json
import multiprocessing
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from rmqio.local import LocalBrokerError, fetch
from rmqio.local.artefacts import ROCKETMQ_LOCK, Artefact, Coordinates, Lock, Repository, dump_lock, read_lock
from rmqio.local.download import Downloader

BODY = bytes(range(256)) * 2000
CHUNK = 128 * 1024
"""The size of a piece that is written at a time: an answer that breaks off loses the rest of the piece."""


def artefact(name: str = "org.example:thing:1.0", body: bytes = BODY) -> Artefact:
    return Artefact(Coordinates.parse(name), hashlib.sha256(body).hexdigest(), len(body))


def lock(*artefacts: Artefact) -> Lock:
    return Lock("test", ("org.example:thing:1.0",), artefacts)


class Server(http.server.ThreadingHTTPServer):
    """A Maven repository that logs (path, range) and misbehaves on demand."""

    daemon_threads = True

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.ranges = True
        self.cut_after: list[int] = []  # bytes after which to break off, for the first answers
        self.statuses: list[int] = []  # statuses to answer with first
        self.headers: dict[str, str] = {}
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def repository(self) -> Repository:
        return Repository(f"http://127.0.0.1:{self.server_address[1]}/repo", "a test")

    def add(self, entry: Artefact, body: bytes = BODY) -> None:
        self.files[f"/repo/{entry.coordinates.path}"] = body


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.requests.append((self.path, wanted))
        self.server.headers = dict(self.headers)
        body = self.server.files.get(self.path)
        if self.server.statuses:
            self.send_error(self.server.statuses.pop(0))
            return
        if body is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.ranges else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        end = start + self.server.cut_after.pop(0) if self.server.cut_after else len(body)
        self.wfile.write(body[start:end])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_maven_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "m2"
    monkeypatch.setattr(fetch, "local_repository", lambda: folder)
    return folder


def download(server: Server, cache: Path, entry: Artefact) -> tuple[Path, int]:
    progress: list[int] = []
    with Downloader(server.repository, cache, progress=progress.append, first_pause_s=0) as downloader:
        return downloader.download(entry), sum(progress)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("org.a.b:c:1", "org/a/b/c/1/c-1.jar"),
        ("org.a:c:1:tar.gz", "org/a/c/1/c-1.tar.gz"),
        ("org.a:c:1.2-x:jar:linux-x86_64", "org/a/c/1.2-x/c-1.2-x-linux-x86_64.jar"),
    ],
)
def test_coordinates_name_a_path_and_round_trip(text: str, path: str) -> None:
    coordinates = Coordinates.parse(text)
    assert coordinates.path == path
    assert str(coordinates) == text


@pytest.mark.parametrize("text", ["", "a:b", "a:b:c:d:e:f", "a::1", "a:b:../..", "a:b/c:1", "a:b:1\n"])
def test_what_is_no_coordinates_is_refused(text: str) -> None:
    with pytest.raises(LocalBrokerError, match="not group:artifact:version"):
        Coordinates.parse(text)


def test_the_checked_in_lock_names_the_servers_and_is_in_the_form_that_the_tool_writes() -> None:
    found = read_lock(ROCKETMQ_LOCK)
    names = {
        f"{entry.coordinates.group}:{entry.coordinates.artifact}:{entry.coordinates.version}"
        for entry in found.artefacts
    }
    assert set(found.roots) <= names
    assert len(found.artefacts) == len({entry.coordinates.path for entry in found.artefacts}) == 137
    assert dump_lock(found) == ROCKETMQ_LOCK.read_text()


@pytest.mark.parametrize(
    "entry",
    [
        {"coordinates": "a:b:1", "sha256": "0" * 64},
        {"coordinates": "a:b:1", "sha256": "0" * 63, "size": 1},
        {"coordinates": "a:b:1", "sha256": "0" * 64, "size": -1},
        {"coordinates": "a:b:1", "sha256": "0" * 64, "size": "1"},
        {"coordinates": "a:b", "sha256": "0" * 64, "size": 1},
        "a:b:1",
    ],
)
def test_a_broken_lock_is_an_error_naming_the_file(tmp_path: Path, entry: object) -> None:
    path = tmp_path / "broken.lock.json"
    path.write_text(json.dumps({"name": "x", "roots": [], "artefacts": [entry]}))
    with pytest.raises(LocalBrokerError, match=r"broken\.lock\.json"):
        read_lock(path)


def test_all_files_are_fetched_once_and_then_taken_from_the_cache(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = [artefact(f"org.example:thing{i}:1.0", BODY[: 1000 * i]) for i in range(1, 13)]
    for entry in entries:
        server.add(entry, BODY[: entry.size])
    first = fetch.fetch(lock(*entries), cache=tmp_path / "cache", repository=server.repository)
    assert [path.stat().st_size for path in first] == [entry.size for entry in entries]
    output = capsys.readouterr()
    assert output.out == ""
    assert len(output.err.splitlines()) == 2  # no progress bar where there is no terminal
    assert fetch.fetch(lock(*entries), cache=tmp_path / "cache", repository=server.repository) == first
    assert len(server.requests) == 12
    assert not list((tmp_path / "cache").rglob("*.part"))


def test_mavens_own_repository_is_used_if_its_file_is_the_right_one(
    server: Server, tmp_path: Path, no_maven_of_the_user: Path
) -> None:
    good, bad = artefact("org.example:good:1.0"), artefact("org.example:bad:1.0")
    server.add(bad)
    for entry, body in ((good, BODY), (bad, BODY[::-1])):
        path = no_maven_of_the_user / entry.coordinates.path
        path.parent.mkdir(parents=True)
        path.write_bytes(body)
    found = fetch.fetch(lock(good, bad), cache=tmp_path / "cache", repository=server.repository)
    assert found == [no_maven_of_the_user / good.coordinates.path, tmp_path / "cache" / bad.coordinates.path]
    assert [path for path, _ in server.requests] == [f"/repo/{bad.coordinates.path}"]


def test_a_damaged_file_of_the_cache_is_fetched_again(server: Server, tmp_path: Path) -> None:
    entry = artefact()
    server.add(entry)
    (path,) = fetch.fetch(lock(entry), cache=tmp_path, repository=server.repository)
    path.write_bytes(BODY[:-1] + b"?")
    assert fetch.fetch(lock(entry), cache=tmp_path, repository=server.repository) == [path]
    assert path.read_bytes() == BODY


def test_a_wrong_checksum_is_an_error_and_leaves_nothing(server: Server, tmp_path: Path) -> None:
    entry = artefact()
    server.add(entry, BODY[::-1])
    with pytest.raises(LocalBrokerError, match="not the file that the lock names") as caught:
        download(server, tmp_path, entry)
    assert entry.sha256 in str(caught.value)
    assert "org.example:thing:1.0" in str(caught.value)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) == 0
    assert len(server.requests) == 1  # asking again would not change it


@pytest.mark.parametrize("body", [BODY + b"more", BODY[:-4]])
def test_a_wrong_size_is_an_error(server: Server, tmp_path: Path, body: bytes) -> None:
    server.add(artefact(), body)
    with pytest.raises(LocalBrokerError, match=r"thing:1\.0"):
        download(server, tmp_path, artefact())
    assert not (tmp_path / artefact().coordinates.path).exists()


def test_a_connection_that_breaks_is_continued_where_it_broke(server: Server, tmp_path: Path) -> None:
    server.add(artefact())
    server.cut_after = [2 * CHUNK, CHUNK + 1]
    path, progress = download(server, tmp_path, artefact())
    assert path.read_bytes() == BODY
    assert progress == len(BODY)
    assert [wanted for _, wanted in server.requests] == [None, f"bytes={2 * CHUNK}-", f"bytes={3 * CHUNK}-"]


def test_the_next_run_goes_on_from_what_the_last_one_left(server: Server, tmp_path: Path) -> None:
    server.add(artefact())
    server.cut_after = [CHUNK, 0, 0, 0]
    with pytest.raises(LocalBrokerError, match="resumes from there"):
        download(server, tmp_path, artefact())
    server.requests.clear()
    assert download(server, tmp_path, artefact())[0].read_bytes() == BODY
    assert [wanted for _, wanted in server.requests] == [f"bytes={CHUNK}-"]


def test_a_server_without_ranges_sends_the_whole_file_again(server: Server, tmp_path: Path) -> None:
    server.add(artefact())
    server.ranges, server.cut_after = False, [CHUNK]
    path, progress = download(server, tmp_path, artefact())
    assert path.read_bytes() == BODY
    assert progress == len(BODY)


@pytest.mark.parametrize("left", [b"x" * 1000, b"x" * len(BODY), b"x" * (len(BODY) + 7)])
def test_a_part_of_other_content_is_dropped(server: Server, tmp_path: Path, left: bytes) -> None:
    entry = artefact()
    server.add(entry)
    part = tmp_path / f"{entry.coordinates.path}.{entry.sha256[:16]}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(left)
    path, progress = download(server, tmp_path, entry)
    assert path.read_bytes() == BODY
    assert progress == len(BODY)


def test_an_overloaded_server_is_asked_again(server: Server, tmp_path: Path) -> None:
    server.add(artefact())
    server.statuses = [503, 429]
    assert download(server, tmp_path, artefact())[0].read_bytes() == BODY


@pytest.mark.parametrize(("status", "words"), [(404, "does not have"), (401, "credentials"), (403, "credentials")])
def test_a_refusal_is_an_error_at_once(server: Server, tmp_path: Path, status: int, words: str) -> None:
    server.statuses = [status]
    with pytest.raises(LocalBrokerError, match=words):
        download(server, tmp_path, artefact())
    assert len(server.requests) == 1


def test_credentials_and_headers_are_sent(server: Server, tmp_path: Path) -> None:
    server.add(artefact())
    repository = Repository(server.repository.url, "a test", ("me", "secret"), (("X-Token", "t"),))
    fetch.fetch(lock(artefact()), cache=tmp_path, repository=repository)
    assert server.headers["Authorization"].startswith("Basic ")
    assert server.headers["X-Token"] == "t"


def test_without_network_the_error_names_the_repository_and_a_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    repository = Repository(f"http://127.0.0.1:{port}", "a test")
    with Downloader(repository, tmp_path, first_pause_s=0) as downloader:
        with pytest.raises(LocalBrokerError, match="Is there a network") as caught:
            downloader.download(artefact())
    assert str(port) in str(caught.value)
    assert "RMQIO_MAVEN_REPOSITORY" in str(caught.value)


def test_a_certificate_that_is_not_trusted_is_an_error_at_once_with_its_remedy(server: Server, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    repository = Repository(server.repository.url.replace("http:", "https:"), "a test")
    with Downloader(repository, tmp_path, first_pause_s=0) as downloader, pytest.raises(LocalBrokerError) as raised:
        downloader.download(artefact())
    assert "the certificate of https://127.0.0.1" in str(raised.value)
    assert "REQUESTS_CA_BUNDLE" in str(raised.value)
    assert "attempts" not in str(raised.value)


def test_the_first_failure_stops_the_other_downloads(server: Server, tmp_path: Path) -> None:
    entries = [artefact(f"org.example:thing{i}:1.0") for i in range(100)]
    with pytest.raises(LocalBrokerError, match="does not have"):
        fetch.fetch(lock(*entries), cache=tmp_path, repository=server.repository)
    assert len(server.requests) < 100


def test_a_repository_may_be_a_folder(tmp_path: Path) -> None:
    entry = artefact()
    source = tmp_path / "my repository" / entry.coordinates.path
    source.parent.mkdir(parents=True)
    source.write_bytes(BODY)
    repository = Repository((tmp_path / "my repository").as_uri(), "a test")
    (path,) = fetch.fetch(lock(entry), cache=tmp_path / "cache", repository=repository)
    assert path.read_bytes() == BODY
    with pytest.raises(LocalBrokerError, match="could not be read"):
        fetch.fetch(lock(artefact("a:b:1")), cache=tmp_path / "cache", repository=repository)


def test_a_cache_that_cannot_be_written_is_an_error_with_a_remedy(server: Server, tmp_path: Path) -> None:
    server.add(artefact())
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(LocalBrokerError, match="RMQIO_CACHE"):
        fetch.fetch(lock(artefact()), cache=tmp_path / "cache", repository=server.repository)


def _fetch_in_child(url: str, cache: Path, entry: Artefact) -> None:
    with Downloader(Repository(url, "a test"), cache) as downloader:
        assert downloader.download(entry).read_bytes() == BODY


def test_two_processes_may_fetch_the_same_file_at_once(server: Server, tmp_path: Path) -> None:
    entry = artefact()
    server.add(entry)
    spawn = multiprocessing.get_context("spawn")
    children = [spawn.Process(target=_fetch_in_child, args=(server.repository.url, tmp_path, entry)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert (tmp_path / entry.coordinates.path).read_bytes() == BODY
    assert len(server.requests) == 1
    assert not list(tmp_path.rglob("*.part"))
