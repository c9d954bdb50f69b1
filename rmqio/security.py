"""Who we are and whom we trust: credentials, TLS, and which addresses may be used. Values that travel with a pipeline.

None of them holds a secret: a source of credentials says where a process finds them, and each process that connects
looks there itself. So no secret is in pipeline options, pickles, checkpoints, display data or Spark's pages.
"""

from __future__ import annotations

import argparse
import importlib
import ipaddress
import logging
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol, runtime_checkable

from rmqio.errors import LocalError

_LOGGER = logging.getLogger(__name__)


class CredentialsError(LocalError):
    """A source has no credentials to give. Nothing was sent."""


class Credentials:
    """An access key, its secret, and the token of temporary ones. Neither shows nor pickles what it holds."""

    __slots__ = ("access_key", "secret_key", "security_token")

    def __init__(self, access_key: str, secret_key: str, security_token: str | None = None) -> None:
        for name, value in (("access_key", access_key), ("secret_key", secret_key)):
            if not isinstance(value, str) or not value:
                raise CredentialsError(f"{name} is empty or no text")
        self.access_key = access_key
        self.secret_key = secret_key
        self.security_token = security_token or None

    def __repr__(self) -> str:
        return "<Credentials, not shown>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Credentials) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def __reduce__(self) -> NoReturn:
        raise TypeError("credentials are not pickled: give a source, for example EnvironmentCredentials()")

    def _all(self) -> tuple[str, str, str | None]:
        return self.access_key, self.secret_key, self.security_token


@runtime_checkable
class CredentialsSource(Protocol):
    """Says where credentials are. Hashable, picklable, and without a secret in it."""

    def get(self) -> Credentials:
        """The credentials as they are now: asked again every few seconds, so that they may change. Raises
        `CredentialsError`.
        """
        ...


ACCESS_KEY_VARIABLE: Final = "ROCKETMQ_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "ROCKETMQ_SECRET_KEY"
SECURITY_TOKEN_VARIABLE: Final = "ROCKETMQ_SECURITY_TOKEN"


@dataclass(frozen=True, slots=True)
class EnvironmentCredentials:
    """From environment variables of the process that connects: on a cluster those of its workers."""

    access_key: str = ACCESS_KEY_VARIABLE
    secret_key: str = SECRET_KEY_VARIABLE
    security_token: str = SECURITY_TOKEN_VARIABLE

    def get(self) -> Credentials:
        """See `CredentialsSource.get`."""
        missing = [name for name in (self.access_key, self.secret_key) if not os.environ.get(name)]
        if missing:
            raise CredentialsError(
                f"credentials: {' and '.join(missing)} not set in the environment of process {os.getpid()}; on a "
                "cluster they must be set for its workers too"
            )
        env = os.environ
        return Credentials(env[self.access_key], env[self.secret_key], env.get(self.security_token))


_warned: set[str] = set()
_FILE_KEYS: Final = {"accesskey": "access_key", "secretkey": "secret_key", "securitytoken": "security_token"}


@dataclass(frozen=True, slots=True)
class FileCredentials:
    """From a file that each process that connects can read, on a cluster at the same path on each machine.

    Lines `accessKey=...`, `secretKey=...` and, for temporary credentials, `securityToken=...`; `key: value` as in
    RocketMQ's `tools.yml` is read too, case and underscores do not matter, `#` begins a comment line.
    """

    path: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", os.fspath(self.path))

    def get(self) -> Credentials:
        """See `CredentialsSource.get`. It warns of a file that everybody on the machine may read."""
        try:
            if os.stat(self.path).st_mode & stat.S_IROTH and self.path not in _warned:
                _warned.add(self.path)
                _LOGGER.warning("everybody on this machine may read the credentials in %s", self.path)
            text = Path(self.path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            # Not the decoder's own words: they quote what is in the file.
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise CredentialsError(f"credentials: cannot read {self.path}: {reason}") from None
        found = dict(_pairs(text))
        missing = [name for name in ("accesskey", "secretkey") if not found.get(_FILE_KEYS[name])]
        if missing:
            raise CredentialsError(f"credentials: {self.path} has no line for {' and '.join(missing)}")
        return Credentials(**found)


def _pairs(text: str) -> Iterable[tuple[str, str]]:
    for line in text.splitlines():
        at = min((line.index(mark) for mark in "=:" if mark in line), default=-1)
        if line.lstrip().startswith("#") or at < 0:
            continue
        name = _FILE_KEYS.get(line[:at].strip().lower().replace("_", ""))
        if name is not None:
            yield name, line[at + 1 :].strip().strip("\"'")


@dataclass(frozen=True, slots=True)
class CallableCredentials:
    """From a function without arguments, named by `module:function`, which each process that connects imports.

    It is asked every few seconds: what is dear to get it should keep itself.
    """

    function: str

    def get(self) -> Credentials:
        """See `CredentialsSource.get`."""
        module, _, name = self.function.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError, ValueError) as error:
            raise CredentialsError(f"credentials: cannot import {self.function!r}: {error}") from error
        given = found()
        if not isinstance(given, Credentials):
            raise CredentialsError(f"credentials: {self.function} gave a {type(given).__name__}, not Credentials")
        return given


def credentials_source(given: object) -> CredentialsSource | None:
    """A source, from what users give for one: a source, a function, or text as on a command line.

    Text is `environment`, `file:PATH` or `function:MODULE:NAME`. Raises `LocalError`.
    """
    if given is None or (isinstance(given, CredentialsSource) and not isinstance(given, (str, type))):
        return given
    if isinstance(given, Credentials):
        raise LocalError(
            "credentials themselves would travel with the pipeline: give a source, EnvironmentCredentials(), "
            "FileCredentials(path) or a function of a module"
        )
    if isinstance(given, str):
        kind, _, rest = given.partition(":")
        if given == "environment":
            return EnvironmentCredentials()
        if kind == "file" and rest:
            return FileCredentials(rest)
        if kind == "function" and ":" in rest:
            return CallableCredentials(rest)
        # Not quoted: it may be a secret that somebody put there.
        raise LocalError("credentials are 'environment', 'file:PATH' or 'function:MODULE:NAME'; this is none of them")
    if callable(given):
        return CallableCredentials(_name_of(given))
    raise LocalError(f"credentials cannot be a {type(given).__name__}; give a source such as EnvironmentCredentials()")


def _name_of(function: Callable[..., object]) -> str:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<locals>")
    if module in (None, "__main__") or "<" in name:
        raise LocalError(
            "this function for credentials cannot be imported by workers, and a pickled one could bring the secret "
            "along: define it at the top of a module of its own"
        )
    return f"{module}:{name}"


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS for every connection, to name servers and brokers. Certificates are verified, host names too.

    Args:
      ca_file: certificates (PEM) of the authorities that are trusted; None: the system's.
      certificate_file, key_file: our own (PEM), for servers that ask for one; the key may be in the first file.
      key_password_variable: the environment variable with the key's password, if it has one.
      server_name: the name that certificates must be for, and that is sent; None: the host of each address.
      insecure: trust anybody: nothing is verified, so whoever is on the way reads and changes everything. It warns.

    Files are read by each process that connects. Raises `LocalError`.
    """

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password_variable: str | None = None
    server_name: str | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        for name in ("ca_file", "certificate_file", "key_file"):
            if (path := getattr(self, name)) is not None:
                object.__setattr__(self, name, os.fspath(path))
        if self.key_file is not None and self.certificate_file is None:
            raise LocalError("Tls.key_file is of no use without certificate_file")
        if self.insecure and (self.ca_file is not None or self.server_name is not None):
            raise LocalError("Tls: insecure verifies nothing, so ca_file and server_name exclude it")


@dataclass(frozen=True, slots=True)
class Security:
    """How connections are secured. The default is RocketMQ's: plain text, no credentials, any address.

    Args:
      credentials: a `CredentialsSource`, a function of a module, or text (`credentials_source`); None: requests are
        not signed.
      tls: None: plain text; True: `Tls()`.
      address_map: `host:port` as routes have it to where it can be reached from here, or host to host with the port
        kept: for brokers behind a gateway or a forwarded port.
      allowed_addresses: where routes may lead: `host`, `host:port`, with `*` as in `*.example.com`, or a network
        (`10.0.0.0/8`). Empty: anywhere. The name servers given, and what `address_map` leads to, are always allowed.

    Raises `LocalError`.
    """

    credentials: CredentialsSource | Callable[[], Credentials] | str | None = None
    tls: Tls | None = None
    address_map: Mapping[str, str] | tuple[tuple[str, str], ...] = ()
    allowed_addresses: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "credentials", credentials_source(self.credentials))
        if self.tls is not None and not isinstance(self.tls, Tls):
            raise LocalError(f"Security.tls is {self.tls!r}; it must be a Tls or None")
        object.__setattr__(self, "address_map", tuple(sorted(dict(self.address_map).items())))
        for origin, target in self._pairs():
            if _has_port(origin) != _has_port(target):
                raise LocalError(f"address_map: {origin!r} to {target!r}: both with a port, or both without")
        if isinstance(self.allowed_addresses, str):
            raise LocalError(f"allowed_addresses is one text, {self.allowed_addresses!r}; it must be several in a list")
        object.__setattr__(self, "allowed_addresses", tuple(self.allowed_addresses))
        for pattern in self.allowed_addresses:
            if "/" in pattern:
                _network(pattern)

    @property
    def source(self) -> CredentialsSource | None:
        """Where credentials come from."""
        return credentials_source(self.credentials)

    def _pairs(self) -> tuple[tuple[str, str], ...]:
        return tuple(self.address_map)  # type: ignore[arg-type]  # a tuple since this was made

    def mapped(self, address: str) -> str:
        """Where to connect to for an address of a route."""
        targets = dict(self._pairs())
        if address in targets:
            return targets[address]
        host, _, port = address.rpartition(":")
        target = targets.get(host.strip("[]"))
        if target is not None:
            return f"[{target}]:{port}" if ":" in target else f"{target}:{port}"
        return address

    def allows(self, address: str) -> bool:
        """Whether an address of a route, before it is mapped, may be connected to."""
        if not self.allowed_addresses or self.mapped(address) != address:
            return True
        host = address.rpartition(":")[0].strip("[]")
        return any(_matches(pattern, address, host) for pattern in self.allowed_addresses)


def _has_port(address: str) -> bool:
    return "]:" in address if address.startswith("[") else address.count(":") == 1


def _network(pattern: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(pattern)
    except ValueError as error:
        raise LocalError(f"allowed_addresses: {pattern!r} is no network: {error}") from error


def _matches(pattern: str, address: str, host: str) -> bool:
    if "/" in pattern:
        try:
            return ipaddress.ip_address(host) in _network(pattern)
        except ValueError:
            return False  # a name: what it resolves to may change between this check and the connection
    if pattern.strip("[]") == host or pattern == address:
        return True
    return fnmatchcase((address if _has_port(pattern) else host).lower(), pattern.lower())


UNSECURED: Final = Security()
"""RocketMQ's default."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a command line; read them with `from_arguments`. None takes a secret."""
    group = parser.add_argument_group("security")
    group.add_argument(
        "--credentials",
        metavar="SOURCE",
        help=f"environment ({ACCESS_KEY_VARIABLE}, {SECRET_KEY_VARIABLE}), file:PATH or function:MODULE:NAME",
    )
    group.add_argument("--tls", action="store_true", help="TLS, verified by the system's authorities")
    group.add_argument("--tls_ca_file", metavar="PEM", help="TLS, verified by these authorities")
    group.add_argument("--tls_certificate_file", metavar="PEM", help="our certificate, for servers that ask for one")
    group.add_argument("--tls_key_file", metavar="PEM", help="its key, if that is in another file")
    group.add_argument("--tls_server_name", metavar="NAME", help="the name that certificates must be for")
    group.add_argument("--tls_insecure", action="store_true", help="TLS that verifies nothing")
    group.add_argument(
        "--address_map",
        metavar="A=B",
        action="append",
        default=[],
        help="go to B where a route says A; repeatable",
    )
    group.add_argument(
        "--allowed_addresses", metavar="A,B", help="hosts, patterns and networks that routes may lead to; default: any"
    )


def from_arguments(args: argparse.Namespace) -> Security:
    """What `add_arguments` was given. Raises `LocalError`."""
    tls = None
    if args.tls or args.tls_insecure or args.tls_ca_file or args.tls_certificate_file or args.tls_server_name:
        tls = Tls(
            ca_file=args.tls_ca_file,
            certificate_file=args.tls_certificate_file,
            key_file=args.tls_key_file,
            server_name=args.tls_server_name,
            insecure=args.tls_insecure,
        )
    elif args.tls_key_file:
        raise LocalError("--tls_key_file is of no use without --tls_certificate_file")
    address_map = {}
    for pair in args.address_map:
        origin, equals, target = pair.partition("=")
        if not equals or not origin or not target:
            raise LocalError(f"--address_map {pair!r}: it must be A=B, e.g. 10.0.0.5:10911=localhost:30911")
        address_map[origin] = target
    allowed = [part.strip() for part in (args.allowed_addresses or "").split(",") if part.strip()]
    return Security(args.credentials, tls, address_map, tuple(allowed))
