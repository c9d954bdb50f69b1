"""Sources of credentials, TLS and addresses: what is taken, what is refused, and that nothing shows a secret."""

from __future__ import annotations

import argparse
import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rmqio import security
from rmqio.client.connections.secured import REFRESH_S, Signer
from rmqio.client.factory import RemotingClientFactory
from rmqio.errors import LocalError
from rmqio.options import ClientOptions
from rmqio.security import (
    CallableCredentials,
    Credentials,
    CredentialsError,
    EnvironmentCredentials,
    FileCredentials,
    Security,
    Tls,
    credentials_source,
)

SECRET = "a-secret-17c3"
PICKLERS = [pytest.param("pickle", id="pickle"), pytest.param("pyspark.cloudpickle", id="cloudpickle")]


@pytest.fixture(params=PICKLERS)
def dumps(request: pytest.FixtureRequest) -> Callable[[object], bytes]:
    found: Callable[[object], bytes] = pytest.importorskip(request.param).dumps
    return found


def given() -> Credentials:
    return Credentials("key", SECRET)


def no_credentials() -> str:
    return SECRET


# ---- credentials -----------------------------------------------------------------------------------------------------


def test_credentials_show_nothing_and_do_not_pickle(dumps: Callable[[object], bytes]) -> None:
    found = Credentials("key", SECRET, "a-token")
    assert repr(found) == str(found) == f"{found}" == "<Credentials, not shown>"
    with pytest.raises(TypeError, match="give a source"):
        dumps(found)


@pytest.mark.parametrize(("key", "secret"), [("", "s"), ("k", ""), (None, "s"), ("k", 5)])
def test_credentials_that_are_none(key: Any, secret: Any) -> None:
    with pytest.raises(CredentialsError, match="is empty or not text"):
        Credentials(key, secret)


@pytest.mark.parametrize("place", range(3))
def test_credentials_that_no_request_could_carry(place: int) -> None:
    given = ["k", "s", "t"]
    given[place] = SECRET + "\udcff"  # as Python has what the environment holds in another encoding
    with pytest.raises(CredentialsError, match="is not UTF-8") as raised:
        Credentials(*given)
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROCKETMQ_ACCESS_KEY", "ROCKETMQ_SECRET_KEY", "ROCKETMQ_SECURITY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "key")
    with pytest.raises(CredentialsError, match="ROCKETMQ_SECRET_KEY not set in the environment of process"):
        EnvironmentCredentials().get()
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", SECRET)
    assert EnvironmentCredentials().get() == Credentials("key", SECRET)
    monkeypatch.setenv("ROCKETMQ_SECURITY_TOKEN", "token")
    assert EnvironmentCredentials().get() == Credentials("key", SECRET, "token")
    monkeypatch.setenv("OTHER", "other")
    assert EnvironmentCredentials(access_key_variable="OTHER").get().access_key == "other"


@pytest.mark.parametrize("field", ["access_key_variable", "secret_key_variable", "security_token_variable"])
@pytest.mark.parametrize("name", ["", "a/secret+of=mine", "7f"])
def test_what_is_no_variable_is_not_quoted(field: str, name: str) -> None:
    with pytest.raises(LocalError, match=f"{field} is not the name of an environment variable") as raised:
        EnvironmentCredentials(**{field: name})
    assert not name or name not in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        f"accessKey={'key'}\nsecretKey={SECRET}\n",
        f"# comment = x\nAccess_Key : 'key'\n\nother: 7\nSECRETKEY: \"{SECRET}\"",
        f"accessKey=key\r\nsecretKey = {SECRET}\r\nsecurityToken=\r\n",
        f"\ufeffaccessKey=key\r\nsecretKey={SECRET}",
    ],
    ids=["properties", "as tools.yml", "from Windows", "with a byte order mark"],
)
def test_a_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "credentials"
    path.write_text(text)
    assert FileCredentials(str(path)).get() == Credentials("key", SECRET)


def test_signs_in_a_secret_belong_to_it(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text("accessKey=a:b\nsecretKey: c=d:e=\nsecurityToken=f#g")
    assert FileCredentials(str(path)).get() == Credentials("a:b", "c=d:e=", "f#g")


def test_files_that_will_not_do(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    with pytest.raises(CredentialsError, match=r"cannot read .*No such file"):
        FileCredentials(str(path)).get()
    path.write_text(f"accessKey=key\nsecretkee={SECRET}")
    with pytest.raises(CredentialsError, match="has no line for secretkey") as raised:
        FileCredentials(str(path)).get()
    assert SECRET not in str(raised.value)
    path.write_bytes(SECRET.encode() + b"\xff")
    with pytest.raises(CredentialsError, match="not UTF-8") as raised:
        FileCredentials(str(path)).get()
    assert raised.value.__cause__ is None


def test_a_file_that_everybody_may_read_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "credentials"
    path.write_text(f"accessKey=key\nsecretKey={SECRET}")
    path.chmod(0o640)
    FileCredentials(str(path)).get()
    assert not caplog.records
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        FileCredentials(str(path)).get()
        FileCredentials(str(path)).get()
    assert len(caplog.records) == 1
    assert SECRET not in caplog.text


def test_a_function_is_kept_by_its_name(dumps: Callable[[object], bytes]) -> None:
    source = credentials_source(given)
    assert source == CallableCredentials(f"{__name__}:given")
    assert source is not None
    assert source.get() == Credentials("key", SECRET)
    copied = pickle.loads(dumps(source))
    assert copied == source


@pytest.mark.parametrize("kind", ["lambda", "inner", "main"])
def test_a_function_that_would_be_pickled_with_what_it_holds_is_refused(kind: str) -> None:
    def inner() -> Credentials:
        return given()

    functions: dict[str, Callable[[], Credentials]] = {"lambda": lambda: given(), "inner": inner}
    if kind == "main":
        code = ModuleType("__main__")
        exec("def main(): ...", code.__dict__)
        functions["main"] = code.main
    with pytest.raises(LocalError, match="at the top level of a module"):
        Security(functions[kind])


def test_functions_that_will_not_do() -> None:
    with pytest.raises(CredentialsError, match=r"cannot import 'no\.such:thing'"):
        CallableCredentials("no.such:thing").get()
    with pytest.raises(CredentialsError, match="returned a str, not Credentials") as raised:
        CallableCredentials(f"{__name__}:no_credentials").get()
    assert SECRET not in str(raised.value)


def sealed() -> Credentials:
    raise KeyError(f"the vault is sealed, it was asked with {SECRET}")


def test_what_a_function_raises_is_told_without_its_words() -> None:
    with pytest.raises(CredentialsError, match="sealed failed with KeyError") as raised:
        CallableCredentials(f"{__name__}:sealed").get()
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_nor_are_those_of_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vault_of_a_test.py").write_text(f"raise ValueError('{SECRET}')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(CredentialsError, match="cannot be imported: ValueError") as raised:
        CallableCredentials("vault_of_a_test:get").get()
    assert SECRET not in str(raised.value)
    assert raised.value.__suppress_context__


def test_a_source_of_the_users_own_may_raise_anything(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    answers: list[Any] = [KeyError(SECRET), given(), KeyError(SECRET), given()]

    class Source:
        def get(self) -> Credentials:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[no-any-return]

    sign = Signer(Source(), lambda: now[0])
    with pytest.raises(CredentialsError, match="failed with KeyError"):
        sign()
    for _ in range(3):
        assert sign() == given()
        now[0] += REFRESH_S + 0.1
    assert len(caplog.records) == 1
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("environment", EnvironmentCredentials()),
        ("file:/etc/rocketmq/key", FileCredentials("/etc/rocketmq/key")),
        ("function:a.b:c", CallableCredentials("a.b:c")),
    ],
)
def test_sources_as_text(text: str, source: object) -> None:
    assert Security(text).source == source


@pytest.mark.parametrize("text", [SECRET, f"key:{SECRET}", "file:", "function:abc", ""])
def test_text_that_is_no_source_is_not_quoted(text: str) -> None:
    with pytest.raises(LocalError, match="this is none of them") as raised:
        Security(text)
    assert SECRET not in str(raised.value)


def test_credentials_themselves_are_refused() -> None:
    with pytest.raises(LocalError, match="would travel with the pipeline"):
        Security(given())  # type: ignore[arg-type]
    with pytest.raises(LocalError, match="cannot be a int"):
        Security(5)  # type: ignore[arg-type]


def test_a_source_is_asked_again_after_a_while() -> None:
    now = [100.0]
    asked: list[float] = []

    class Source:
        def get(self) -> Credentials:
            asked.append(now[0])
            return given()

    sign = Signer(Source(), lambda: now[0])
    sign()
    sign()
    now[0] += REFRESH_S + 0.1
    sign()
    assert asked == [100.0, 100.0 + REFRESH_S + 0.1]


def test_credentials_are_kept_while_their_source_has_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that is being replaced may be empty for a moment."""
    path = tmp_path / "credentials"
    path.write_text("accessKey=key\nsecretKey=old")
    path.chmod(0o600)
    now = [100.0]
    sign = Signer(FileCredentials(str(path)), lambda: now[0])
    assert sign().secret_key == "old"
    path.write_text("")
    for _ in range(3):
        now[0] += REFRESH_S + 0.1
        assert sign().secret_key == "old"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "has no line for accesskey" in caplog.text
    path.write_text("accessKey=key\nsecretKey=new")
    now[0] += REFRESH_S + 0.1
    assert sign().secret_key == "new"


def test_without_any_credentials_a_source_fails(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="cannot read"):
        Signer(FileCredentials(str(tmp_path / "none")), lambda: 0.0)()


def test_a_factory_with_all_of_it_pickles_hashes_and_shows_no_secret(
    monkeypatch: pytest.MonkeyPatch, dumps: Callable[[object], bytes]
) -> None:
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "key")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", SECRET)

    def make() -> RemotingClientFactory:
        tls = Tls(ca_file="/ca.pem", certificate_file="/c.pem", key_password_variable="KEY_PASSWORD")
        whole = Security("environment", tls, {"a:1": "b:2"}, ["10.0.0.0/8"])
        return RemotingClientFactory(ClientOptions("host:9876", security=whole))

    factory = make()
    assert factory == make()
    assert hash(factory) == hash(make())
    data = dumps(factory)
    assert pickle.loads(data) == factory
    assert SECRET.encode() not in data
    assert SECRET not in repr(factory)


# ---- TLS -------------------------------------------------------------------------------------------------------------


def test_options_of_tls_that_contradict_each_other() -> None:
    with pytest.raises(LocalError, match="key_file has no effect"):
        Tls(key_file="key.pem")
    for more in ({"ca_file": "ca.pem"}, {"server_name": "a"}):
        with pytest.raises(LocalError, match="insecure verifies nothing"):
            Tls(insecure=True, **more)
    for name in (".a", "a b", "a\0", "a..b", "ä" * 63, "::1%1\0"):
        with pytest.raises(LocalError, match="must be a host name or an IP address"):
            Tls(server_name=name)
    with pytest.raises(LocalError, match="not the name of an environment variable"):
        Tls(certificate_file="c.pem", key_password_variable="my-password")
    with pytest.raises(LocalError, match="must be a Tls or None"):
        Security(tls=True)  # type: ignore[arg-type]


# ---- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "address", "is_allowed"),
    [
        ((), "anywhere:1", True),
        (("10.0.0.0/8",), "10.1.2.3:10911", True),
        (("10.0.0.0/8",), "11.1.2.3:10911", False),
        (("10.0.0.0/8",), "ten.example.com:10911", False),
        (("fd00::/8",), "[fd00::1]:10911", True),
        (("fd00::/8",), "[fe80::1]:10911", False),
        (("::1",), "[::1]:10911", True),
        (("[::1]:10911",), "[::1]:10911", True),
        (("[::1]:10911",), "[::1]:10912", False),
        (("*.example.com",), "a.example.com:1", True),
        (("*.EXAMPLE.com",), "A.example.com:1", True),
        (("*.example.com",), "a.example.com.evil.org:1", False),
        (("*.example.com",), "example.com:1", False),
        (("b.example.com:10911", "c"), "b.example.com:10911", True),
        (("b.example.com:10911", "c"), "b.example.com:22", False),
        (("b.example.com:10911", "c"), "c:22", True),
        (("b:109*",), "b:10911", True),
        (("b:109*",), "b:8080", False),
        (("10.0.*",), "10.0.1.2:1", True),
        (("10.0.*",), "10.0.evil.example.org:1", False),
        (("10.0.*",), "10.0.7:1", False),
        (("10.0.0.0/8",), "167772161:1", False),
        (("10.0.0.0/8",), "[::ffff:10.1.2.3]:1", False),
        (("[fe80::10]",), "0:10911", False),
        (("[::1]:10911",), "1:10911", False),
        (("fd00::*",), "[fd00::7]:1", True),
        (("FD00:0:0::1",), "[fd00::1]:1", True),
        (("a.b",), "axb:1", False),
        (("*.example.com",), "[fe80::1%1.example.com]:1", False),
        (("fe80::1",), "[fe80::1%eth0]:1", True),
        (("fe80::/10",), "[fe80::1%eth0]:1", True),
        (("fe80::1%eth0",), "[fe80::1%eth0]:1", True),
        (("fe80::1%eth0",), "[fe80::1%eth1]:1", False),
        (("*",), "[fe80::1]:1", True),
        (("*",), "anything:1", True),
    ],
)
def test_allowed_addresses(allowed: tuple[str, ...], address: str, is_allowed: bool) -> None:
    assert Security(allowed_addresses=allowed).allows(address) is is_allowed


@pytest.mark.parametrize(
    ("given", "address", "target"),
    [
        ({}, "a:1", "a:1"),
        ({"a:1": "b:2"}, "a:1", "b:2"),
        ({"a:1": "b:2"}, "a:2", "a:2"),
        ({"a": "b"}, "a:7", "b:7"),
        ({"a:1": "b:2", "a": "c"}, "a:3", "c:3"),
        ({"a:1": "b:2", "a": "c"}, "a:1", "b:2"),
        ({"::1": "10.0.0.1"}, "[::1]:7", "10.0.0.1:7"),
        ({"a": "fd00::1"}, "a:7", "[fd00::1]:7"),
        ({"[FD00:0::1]": "gateway"}, "[fd00::1]:7", "gateway:7"),
        ({"[fd00::1]:7": "[fd00::2]:8"}, "[fd00::1]:7", "[fd00::2]:8"),
        ({"Broker.Example.com": "gateway"}, "broker.example.com:7", "gateway:7"),
    ],
)
def test_mapped_addresses(given: dict[str, str], address: str, target: str) -> None:
    found = Security(address_map=given)
    assert found.mapped(address) == target
    assert Security(address_map=given, allowed_addresses=["nothing.else"]).allows(address) is (address != target)


def test_an_address_that_is_mapped_to_itself_is_allowed() -> None:
    assert Security(address_map={"a:1": "a:1"}, allowed_addresses=["nothing.else"]).allows("a:1")


def test_rules_for_addresses_that_will_not_do() -> None:
    with pytest.raises(LocalError, match="give a port for both or for neither"):
        Security(address_map={"a:1": "b"})
    for rule in ({"a:1:2": "b"}, {"a": "b c"}, {"": "b"}, {"a:1": "b:99999"}, {"a": "b\0.c"}):
        with pytest.raises(LocalError, match="address_map"):
            Security(address_map=rule)
    for pattern in ("", "a?", "[ab]", "a b", "10.0.0.0:x", "b\0"):
        with pytest.raises(LocalError, match="is not a host, host:port or network"):
            Security(allowed_addresses=[pattern])
    with pytest.raises(LocalError, match="not a network"):
        Security(allowed_addresses=["10.0.0.0/99"])
    with pytest.raises(LocalError, match="must be a list of texts"):
        Security(allowed_addresses="10.0.0.0/8")


# ---- the command line ------------------------------------------------------------------------------------------------


def parsed(*argv: str) -> Security:
    parser = argparse.ArgumentParser()
    security.add_arguments(parser)
    return security.from_arguments(parser.parse_args(argv))


def test_the_command_line() -> None:
    assert parsed() == Security() == security.UNSECURED
    assert parsed("--tls").tls == Tls()
    assert parsed("--tls_ca_file=/ca.pem").tls == Tls(ca_file="/ca.pem")
    assert parsed("--tls_insecure").tls == Tls(insecure=True)
    files = ("--tls_certificate_file=/c.pem", "--tls_key_file=/k.pem", "--tls_key_password_variable=PASSWORD")
    assert parsed(*files).tls == Tls(certificate_file="/c.pem", key_file="/k.pem", key_password_variable="PASSWORD")
    assert parsed("--credentials=environment").source == EnvironmentCredentials()
    found = parsed("--address_map=a:1=b:2", "--address_map=c=d", "--allowed_addresses=10.0.0.0/8, *.example.com")
    assert found == Security(address_map={"a:1": "b:2", "c": "d"}, allowed_addresses=("10.0.0.0/8", "*.example.com"))


@pytest.mark.parametrize(
    "argv", [["--tls_key_file=k"], ["--tls_key_password_variable=P"], ["--address_map=a"], ["--address_map=a:1=b"]]
)
def test_a_command_line_that_will_not_do(argv: list[str]) -> None:
    with pytest.raises(LocalError):
        parsed(*argv)
