"""Sources of credentials: what is taken, what is refused, and that nothing shows a secret."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rmqio.client.connection import REFRESH_S, Signer
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
    password_from,
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
    with pytest.raises(CredentialsError, match=r"read .*\*\*\* .*No such file") as raised:
        password_from(None, SECRET)  # the password in place of its file
    assert SECRET not in str(raised.value)
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


def test_what_a_function_raises_is_reported_without_its_words() -> None:
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
    with pytest.raises(LocalError, match="this is not one of them") as raised:
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
