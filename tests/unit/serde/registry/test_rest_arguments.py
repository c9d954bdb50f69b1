"""Arguments of `RestRegistry`: credentials, which no text shows; what is checked, compared and pickled."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from rmqio.errors import LocalError
from rmqio.serde.registry import BasicAuth, RegistryUnavailable, RestRegistry, SchemaRegistryError, TokenAuth
from tests.helpers.serde.registry_server import FOUND, SCHEMA, SECRET, Answer, Connect, Server, answer


def a_token() -> str:
    return "from a function".replace(" ", "-")


@pytest.mark.parametrize(
    ("auth", "header"),
    [
        (None, None),
        (BasicAuth("me", "pässword"), "Basic bWU6cMOkc3N3b3Jk"),
        (BasicAuth("me", a_token), "Basic bWU6ZnJvbS1hLWZ1bmN0aW9u"),
        (TokenAuth("abc"), "Bearer abc"),
        (TokenAuth(a_token), "Bearer from-a-function"),
    ],
    ids=range(5),
)
def test_credentials_are_sent(
    server: Server,
    connect: Connect,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    auth: BasicAuth | TokenAuth | None,
    header: str | None,
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login other password {SECRET}\n")
    monkeypatch.setenv("NETRC", str(netrc))  # what the HTTP library would fall back to
    connect(auth=auth).by_id(7)
    assert [request.authorization for request in server.requests] == [header]


def test_a_function_is_asked_for_a_token_each_time(server: Server, connect: Connect) -> None:
    tokens = iter(["one", "two", "three"])
    server.script(answer(503, {}), FOUND)
    registry = connect(auth=TokenAuth(lambda: next(tokens)))
    registry.by_id(7)
    registry.by_id(8)
    assert [request.authorization for request in server.requests] == ["Bearer one", "Bearer two", "Bearer three"]


def test_a_function_that_fails_may_be_asked_again(server: Server, connect: Connect) -> None:
    def fail() -> str:
        raise OSError(SECRET)

    with pytest.raises(RegistryUnavailable, match="the function that returns its credentials raised OSError") as caught:
        connect(auth=TokenAuth(fail)).by_id(7)
    assert SECRET not in str(caught.value)
    assert not server.requests


@pytest.mark.parametrize("token", ["", f"{SECRET}\n", f"{SECRET} {SECRET}", f"{SECRET}ü"])
def test_a_token_that_no_header_may_hold_is_refused_without_being_quoted(connect: Connect, token: str) -> None:
    with pytest.raises(LocalError, match="the token of TokenAuth is empty or contains") as caught:
        connect(auth=TokenAuth(token)).by_id(7)
    assert SECRET not in str(caught.value)


def test_credentials_in_the_url_are_taken_apart(server: Server, connect: Connect) -> None:
    url = server.url.replace("//", "//me%40here:hunter%32@")
    registry = connect(url)
    assert registry == connect(server.url, auth=BasicAuth("me@here", SECRET))
    registry.by_id(7)
    assert server.requests[0].authorization == "Basic bWVAaGVyZTpodW50ZXIy"
    with pytest.raises(LocalError, match="credentials are given both in url= and in auth="):
        connect(url, auth=TokenAuth("x"))


@pytest.mark.parametrize("auth", [BasicAuth("me", SECRET), TokenAuth(SECRET)], ids=["basic", "token"])
def test_credentials_are_in_no_text(server: Server, connect: Connect, auth: BasicAuth | TokenAuth) -> None:
    registry = connect(auth=auth)
    assert SECRET not in repr(registry) + str(pickle.loads(pickle.dumps(registry)))
    server.script(answer(503, {}))
    errors = []
    for given in (answer(503, {}), answer(401, {}), Answer(200, b"x"), Answer(200, b"x", cut=True)):
        server.script(given)
        with pytest.raises(SchemaRegistryError) as caught:
            registry.by_id(7)
        errors.append(caught.value)
    for error in errors:
        assert SECRET not in f"{error!r} {error.__cause__!r} {vars(error)} {getattr(error.__cause__, '__dict__', '')}"


def test_unencrypted_credentials_are_warned_of_once(caplog: pytest.LogCaptureFixture, connect: Connect) -> None:
    registry = connect("http://nowhere.invalid", auth=BasicAuth("me", SECRET), retries=0)
    for _ in range(2):
        with pytest.raises(RegistryUnavailable):
            registry.subjects()
    assert caplog.text.count("credentials are sent unencrypted to the schema registry http://nowhere.invalid") == 1
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"ftp://me:{SECRET}@host", "must be like https://host:port/path"),
        (f"me:{SECRET}@host:8081", "must be like https"),
        (f"http://me:{SECRET}@", "must be like https"),
        (f"http://me:{SECRET}@host:port", "its host or port cannot be read"),
        (f"http://me:{SECRET}@[::1", "its host or port cannot be read"),
        (f"http://host/?token={SECRET}", "must end with its path"),
        ("http://host/#x", "must end with its path"),
    ],
)
def test_a_url_that_is_none_is_refused_without_being_quoted(url: str, message: str) -> None:
    with pytest.raises(LocalError, match=message) as caught:
        RestRegistry(url)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"timeout_s": 0}, "timeout_s=0: it must be more than 0 seconds"),
        ({"timeout_s": float("nan")}, "timeout_s=nan"),
        ({"retries": -1}, "retries=-1: it must be 0 or more"),
        ({"latest_ttl_s": -0.5}, "latest_ttl_s=-0.5: it must be 0 seconds or more"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(LocalError, match=message):
        RestRegistry("http://host", **arguments)


def test_registries_are_equal_by_configuration() -> None:
    assert RestRegistry("http://host/") == RestRegistry("http://host")
    assert hash(RestRegistry("http://host/")) == hash(RestRegistry("http://host"))
    assert RestRegistry("http://host") != RestRegistry("http://host", auth=TokenAuth("x"))


def test_a_pickled_registry_has_its_configuration_and_nothing_else(server: Server) -> None:
    registry = RestRegistry(server.url, auth=TokenAuth(a_token), retries=0)
    registry.by_id(7)
    copy = pickle.loads(pickle.dumps(registry))
    assert copy == registry
    assert copy.by_id(7) == SCHEMA
    assert len(server.requests) == 2
    assert b"from-a-function" not in pickle.dumps(registry)
    registry.close()
    copy.close()
