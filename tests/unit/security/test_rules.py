"""Options of TLS, rules for addresses, and both on a command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest

from rmqio import security
from rmqio.addresses import AddressPattern, parse_address
from rmqio.errors import LocalError
from rmqio.prometheus import export
from rmqio.security import EnvironmentCredentials, Security, Tls

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


@pytest.mark.parametrize(
    "refused",
    [
        lambda: parse_address("u:pw7@x:pw7@h:1"),
        lambda: AddressPattern.parse("u:pw7/@h:1"),
        lambda: AddressPattern.parse("u:pw7@h:1"),
        lambda: Security(address_map={"h:1": "u:pw7@h:1"}),
        lambda: parsed("--address_map=u:pw7@h:1"),
        lambda: export.parse_address("u:pw7@h:x"),
    ],
)
def test_what_is_before_an_at_sign_is_not_shown(refused: Callable[[], object]) -> None:
    with pytest.raises(LocalError, match=r"'\*\*\*@h:[1x]'") as raised:
        refused()
    assert "pw7" not in str(raised.value)
