"""Who we are and whom we trust: credentials, TLS, and which addresses may be used. Values that travel with a pipeline.

None of them holds a secret: a source of credentials says where a process finds them, and each process that connects
looks there itself. So no secret is in pipeline options, pickles, checkpoints, display data or Spark's pages.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol, runtime_checkable

from rmqio.addresses import AddressPattern, canonical_host, is_host, join_address, parse_address, split_port
from rmqio.errors import LocalError, SetupError

_LOGGER = logging.getLogger(__name__)


class CredentialsError(SetupError):
    """A source has no credentials to give. Nothing was sent."""


class Credentials:
    """An access key, its secret, and the token of temporary ones. Neither shows nor pickles what it holds."""

    __slots__ = ("access_key", "secret_key", "security_token")

    def __init__(self, access_key: str, secret_key: str, security_token: str | None = None) -> None:
        for name, value in (("access_key", access_key), ("secret_key", secret_key)):
            if not isinstance(value, str) or not value:
                raise CredentialsError(f"{name} is empty or no text")
        for name, given in (("access_key", access_key), ("secret_key", secret_key), ("security_token", security_token)):
            try:
                (given or "").encode()
            except UnicodeEncodeError:  # whose words quote the text
                raise CredentialsError(f"{name} is not UTF-8") from None
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
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class EnvironmentCredentials:
    """From environment variables, named here, of the process that connects: on a cluster those of its workers."""

    access_key_variable: str = ACCESS_KEY_VARIABLE
    secret_key_variable: str = SECRET_KEY_VARIABLE
    security_token_variable: str = SECURITY_TOKEN_VARIABLE

    def __post_init__(self) -> None:
        for field in ("access_key_variable", "secret_key_variable", "security_token_variable"):
            if not _VARIABLE.fullmatch(getattr(self, field)):  # not quoted: it may be a secret that somebody put there
                raise LocalError(f"EnvironmentCredentials.{field} is no name of an environment variable")

    def get(self) -> Credentials:
        """See `CredentialsSource.get`."""
        names = (self.access_key_variable, self.secret_key_variable)
        missing = [name for name in names if not os.environ.get(name)]
        if missing:
            raise CredentialsError(
                f"credentials: {' and '.join(missing)} not set in the environment of process {os.getpid()}; on a "
                "cluster they must be set for its workers too"
            )
        access_key, secret_key = (os.environ[name] for name in names)
        return Credentials(access_key, secret_key, os.environ.get(self.security_token_variable))


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
            text = Path(self.path).read_text(encoding="utf-8-sig")
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
        """See `CredentialsSource.get`. Whatever the function raises becomes one, without its words."""
        module, _, name = self.function.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except (ModuleNotFoundError, AttributeError) as error:
            raise CredentialsError(f"credentials: cannot import {self.function!r}: {error}") from None
        except Exception as error:  # noqa: BLE001  # of the module's own code, whose words are as those of the function
            what = type(error).__name__
            raise CredentialsError(f"credentials: {self.function!r} cannot be imported: {what}") from None
        try:
            given = found()
        except CredentialsError:
            raise
        except Exception as error:  # noqa: BLE001  # it is a user's code. Its words may quote what it asked for, and with what
            raise CredentialsError(f"credentials: {self.function} failed with {type(error).__name__}") from None
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

    Files are read by each process that connects, and again when they have changed. Raises `LocalError`.
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
        if self.server_name is not None and not is_host(self.server_name):
            raise LocalError(f"Tls.server_name is {self.server_name!r}; it must be a host's name or IP address")
        if self.key_password_variable is not None and not _VARIABLE.fullmatch(self.key_password_variable):
            raise LocalError("Tls.key_password_variable is no name of an environment variable")  # not quoted, as above
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
      allowed_addresses: where routes may lead: `host`, `host:port`, with `*` as in `*.example.com` or `10.0.*` (which
        holds for addresses, not for names), or a network (`10.0.0.0/8`). Empty: anywhere. The name servers given, and
        what `address_map` leads to, are always allowed.

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
            _check_rule(origin, target)
        if isinstance(self.allowed_addresses, str):
            raise LocalError(f"allowed_addresses is one text, {self.allowed_addresses!r}; it must be several in a list")
        object.__setattr__(self, "allowed_addresses", tuple(self.allowed_addresses))
        for pattern in self.allowed_addresses:
            AddressPattern.parse(pattern)

    @property
    def source(self) -> CredentialsSource | None:
        """Where credentials come from."""
        return credentials_source(self.credentials)

    def _pairs(self) -> tuple[tuple[str, str], ...]:
        return tuple(self.address_map)  # type: ignore[arg-type]  # a tuple since this was made

    def mapped(self, address: str) -> str:
        """Where to connect to for an address of a route. Raises `LocalError` for what is no address."""
        host, port = parse_address(address)
        return self._rule_for(host, port) or address

    def _rule_for(self, host: str, port: int) -> str | None:
        targets = {_key(origin): target for origin, target in self._pairs()}
        whole = targets.get((canonical_host(host), str(port)))
        if whole is not None:
            return whole
        other = targets.get((canonical_host(host), None))
        return None if other is None else join_address(other.removeprefix("[").removesuffix("]"), port)

    def allows(self, address: str) -> bool:
        """Whether an address of a route, before it is mapped, may be connected to. Raises as `mapped`."""
        host, port = parse_address(address)
        if not self.allowed_addresses or self._rule_for(host, port) is not None:
            return True
        return any(AddressPattern.parse(pattern).matches(host, port) for pattern in self.allowed_addresses)


def _key(origin: str) -> tuple[str, str | None]:
    host, port = split_port(origin)
    return canonical_host(host), port


def _check_rule(origin: str, target: str) -> None:
    for text in (origin, target):
        host, port = split_port(text)
        try:
            parse_address(join_address(host, port or 1))
        except LocalError as error:
            raise LocalError(f"address_map: {text!r} is neither a host nor host:port") from error
    if (split_port(origin)[1] is None) != (split_port(target)[1] is None):
        raise LocalError(f"address_map: {origin!r} to {target!r}: both with a port, or both without")


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
    group.add_argument(
        "--tls_key_password_variable", metavar="NAME", help="the environment variable with the key's password"
    )
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
            key_password_variable=args.tls_key_password_variable,
            server_name=args.tls_server_name,
            insecure=args.tls_insecure,
        )
    elif args.tls_key_file or args.tls_key_password_variable:
        name = "tls_key_file" if args.tls_key_file else "tls_key_password_variable"
        raise LocalError(f"--{name} is of no use without --tls_certificate_file")
    address_map = {}
    for pair in args.address_map:
        origin, equals, target = pair.partition("=")
        if not equals or not origin or not target:
            raise LocalError(f"--address_map {pair!r}: it must be A=B, e.g. 10.0.0.5:10911=localhost:30911")
        address_map[origin] = target
    allowed = [part.strip() for part in (args.allowed_addresses or "").split(",") if part.strip()]
    return Security(args.credentials, tls, address_map, tuple(allowed))
