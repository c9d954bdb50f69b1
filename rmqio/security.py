"""Authentication and trust: credentials, TLS, and which addresses may be used. The values travel with a pipeline.

None of them contains a secret: a credentials source says where the credentials are, and each process that connects
reads them there. Therefore no secret is in pipeline options, pickles, checkpoints, display data or Spark's pages.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol, runtime_checkable
from urllib.parse import parse_qsl

from rmqio.addresses import (
    AddressPattern,
    canonical_host,
    is_host,
    join_address,
    parse_address,
    require_port,
    shown_address,
    split_port,
)
from rmqio.errors import LocalError, SetupError
from rmqio.hints import nearest

_LOGGER = logging.getLogger(__name__)


class CredentialsError(SetupError):
    """A source cannot provide credentials. Nothing was sent."""


class Credentials:
    """An access key, its secret key, and the token of temporary credentials. They are never shown or pickled."""

    __slots__ = ("access_key", "secret_key", "security_token")

    def __init__(self, access_key: str, secret_key: str, security_token: str | None = None) -> None:
        for name, value in (("access_key", access_key), ("secret_key", secret_key)):
            if not isinstance(value, str) or not value:
                raise CredentialsError(f"{name} is empty or not text")
        for name, given in (("access_key", access_key), ("secret_key", secret_key), ("security_token", security_token)):
            try:
                (given or "").encode()
            except UnicodeEncodeError:  # its message quotes the text
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
    """Says where credentials are. Hashable, picklable, and without a secret."""

    def get(self) -> Credentials:
        """The current credentials; called again every few seconds, so they can change. Raises `CredentialsError`."""
        ...


ACCESS_KEY_VARIABLE: Final = "ROCKETMQ_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "ROCKETMQ_SECRET_KEY"
SECURITY_TOKEN_VARIABLE: Final = "ROCKETMQ_SECURITY_TOKEN"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def is_variable_name(text: str) -> bool:
    """Returns whether a text can be shown as the name of an environment variable: it is set, or is all in capitals.

    Another text may be the secret itself, given by mistake.
    """
    return _VARIABLE.fullmatch(text) is not None and (text in os.environ or text == text.upper())


def shown_variable(name: str) -> str:
    """Returns the name of an environment variable for a message, or `***` with the reason."""
    return name if is_variable_name(name) else "*** (not in capitals: it may be the secret itself)"


def is_path(text: str) -> bool:
    """Returns whether a text can be shown as the path of a file that has a secret, and is not the secret itself."""
    # Half of the secrets in base 64 have a / somewhere.
    return text.startswith(("/", "./", "../", "~")) or os.path.exists(os.path.dirname(text) or text)


def shown_path(path: str) -> str:
    """Returns the path of a file that has a secret for a message, or `***` with the reason."""
    return path if is_path(path) else "*** (its folder is not here: it may be the secret itself)"


@dataclass(frozen=True, slots=True)
class EnvironmentCredentials:
    """Reads credentials from environment variables of the process that connects (on a cluster: of its workers)."""

    access_key_variable: str = ACCESS_KEY_VARIABLE
    secret_key_variable: str = SECRET_KEY_VARIABLE
    security_token_variable: str = SECURITY_TOKEN_VARIABLE

    def __post_init__(self) -> None:
        for field in ("access_key_variable", "secret_key_variable", "security_token_variable"):
            if not _VARIABLE.fullmatch(getattr(self, field)):  # not quoted: it may be a secret, put here by mistake
                raise LocalError(f"EnvironmentCredentials.{field} is not the name of an environment variable")

    def get(self) -> Credentials:
        """See `CredentialsSource.get`."""
        names = (self.access_key_variable, self.secret_key_variable)
        missing = [name for name in names if not os.environ.get(name)]
        if missing:
            raise CredentialsError(
                f"credentials: {' and '.join(map(shown_variable, missing))} not set in the environment of process "
                f"{os.getpid()}; on a cluster they must be set for its workers too"
            )
        access_key, secret_key = (os.environ[name] for name in names)
        return Credentials(access_key, secret_key, os.environ.get(self.security_token_variable))


def password_from(variable: str | None, file: str | None) -> str | None:
    """Returns the password that an environment variable or the first line of a file has; None: neither is given.

    Each process that connects calls it, so that no pipeline has the password. Raises `CredentialsError`.
    """
    if variable is not None:
        if variable not in os.environ:
            raise CredentialsError(
                f"the environment variable {shown_variable(variable)} is not set in process {os.getpid()}; on a "
                "cluster it must be set for its workers too"
            )
        return os.environ[variable]
    if file is None:
        return None
    _warn_if_readable(file)
    try:
        first, *_ = [*Path(file).read_text(encoding="utf-8-sig").splitlines(), ""]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise CredentialsError(f"the password cannot be read from {shown_path(file)}: {reason}") from None
    return first


@dataclass(frozen=True, slots=True)
class SecretSource:
    """Says where a password is, for systems beside RocketMQ. Hashable, picklable, and without the password.

    Args:
      variable: an environment variable of the process that connects.
      file: a file whose first line it is.
    """

    variable: str | None = None
    file: str | None = None

    @classmethod
    def of(cls, name: str, variable: str | None, file: str | None) -> SecretSource | None:
        """The source for the arguments `{name}_env` and `{name}_file`; None: neither is given. Raises `LocalError`."""
        if variable is not None and file is not None:
            raise LocalError(f"{name}_env and {name}_file are both given: omit one of them")
        if variable is not None and not (isinstance(variable, str) and _VARIABLE.fullmatch(variable)):
            raise LocalError(f"{name}_env is not the name of an environment variable")  # not quoted, as above
        return None if variable is None and file is None else cls(variable, None if file is None else os.fspath(file))

    def get(self) -> str:
        """The password, read now. Raises `CredentialsError`."""
        return password_from(self.variable, self.file) or ""


_IN_URL: Final = re.compile(r"[\w.+-]+://[^:/]*:[^@]*@")  # as SQLAlchemy: a user can have an @
_SECRET: Final = re.compile(r"pass(word|wd|phrase)|^pwd$|\bpwd=|secret|token", re.IGNORECASE)


def holds_password(url: str) -> bool:
    """Returns whether a URL has a password, before the host or as a parameter."""
    return _IN_URL.match(url) is not None or any(
        _SECRET.search(name)
        or nearest(name.lower(), ("password",), cutoff=0.8)  # it is misspelt
        or (name == "odbc_connect" and _SECRET.search(value))  # which has several in its value
        for name, value in parse_qsl(url.partition("?")[2])
    )


def require_no_password(url: str, shown: str) -> None:
    """Raises `LocalError` for a URL with a password, or what may be one. `shown`: the URL without it."""
    require_port(url, shown)
    if holds_password(url):
        raise LocalError(
            f"{shown}: the URL holds a password, which would travel with the pipeline: give password_env=, an "
            "environment variable of each process that connects, or password_file="
        )


_warned: set[str] = set()


def _warn_if_readable(path: str) -> None:
    with contextlib.suppress(OSError):  # reading it says why
        if os.stat(path).st_mode & stat.S_IROTH and path not in _warned:
            _warned.add(path)
            _LOGGER.warning("everyone on this machine can read the credentials in %s", path)


_FILE_KEYS: Final = {"accesskey": "access_key", "secretkey": "secret_key", "securitytoken": "security_token"}


@dataclass(frozen=True, slots=True)
class FileCredentials:
    """Reads credentials from a file that each process that connects can read (on a cluster: at the same path).

    The file has lines `accessKey=...`, `secretKey=...` and, for temporary credentials, `securityToken=...`. Lines
    `key: value` as in RocketMQ's `tools.yml` are also accepted. Case and underscores are ignored, and `#` starts a
    comment line.
    """

    path: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", os.fspath(self.path))

    def get(self) -> Credentials:
        """See `CredentialsSource.get`. Logs a warning if everybody on the machine can read the file."""
        _warn_if_readable(self.path)
        try:
            text = Path(self.path).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            # Not the decoder's own message: it quotes the file's content.
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
    """Calls a function without arguments, named as `module:function`, which each process that connects imports.

    It is called every few seconds, so it should cache credentials that are expensive to get.
    """

    function: str

    def get(self) -> Credentials:
        """See `CredentialsSource.get`. An exception of the function becomes a `CredentialsError` without its text."""
        module, _, name = self.function.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except (ModuleNotFoundError, AttributeError) as error:
            raise CredentialsError(f"credentials: cannot import {self.function!r}: {error}") from None
        except Exception as error:  # noqa: BLE001  # the module's code; its message can quote secrets, too
            what = type(error).__name__
            raise CredentialsError(f"credentials: {self.function!r} cannot be imported: {what}") from None
        try:
            given = found()
        except CredentialsError:
            raise
        except Exception as error:  # noqa: BLE001  # a user's code, whose message can quote secrets
            raise CredentialsError(f"credentials: {self.function} failed with {type(error).__name__}") from None
        if not isinstance(given, Credentials):
            raise CredentialsError(f"credentials: {self.function} returned a {type(given).__name__}, not Credentials")
        return given


def credentials_source(given: object) -> CredentialsSource | None:
    """The credentials source for what a user specifies: a source, a function, or text as on a command line.

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
        # Not quoted: it may be a secret, put here by mistake.
        raise LocalError(
            "credentials are 'environment', 'file:PATH' or 'function:MODULE:NAME'; this is not one of them"
        )
    if callable(given):
        return CallableCredentials(_name_of(given))
    raise LocalError(f"credentials cannot be a {type(given).__name__}; give a source such as EnvironmentCredentials()")


def _name_of(function: Callable[..., object]) -> str:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<locals>")
    if module in (None, "__main__") or "<" in name:
        raise LocalError(
            "workers cannot import this function for credentials, and a pickled one could contain the secret: define "
            "it at the top level of a module that workers can import"
        )
    return f"{module}:{name}"


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS for every connection, to name servers and brokers. Certificates and host names are verified.

    Args:
      ca_file: certificates (PEM) of the trusted authorities; None: the system's.
      certificate_file, key_file: our own certificate and key (PEM), for servers that request one. The key can be in the
        certificate file.
      key_password_variable: the environment variable with the key's password, if it has one.
      server_name: the name that certificates must be for, and that is sent; None: the host of each address.
      insecure: verify nothing. Anybody between us and the server can then read and change everything. Logs a warning.

    Each process that connects reads the files, and reads them again when they have changed. Raises `LocalError`.
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
            raise LocalError("Tls.key_file has no effect without certificate_file: set both")
        if self.server_name is not None and not is_host(self.server_name):
            raise LocalError(f"Tls.server_name is {self.server_name!r}; it must be a host name or an IP address")
        if self.key_password_variable is not None and not _VARIABLE.fullmatch(self.key_password_variable):
            raise LocalError("Tls.key_password_variable is not the name of an environment variable")  # as above
        if self.insecure and (self.ca_file is not None or self.server_name is not None):
            raise LocalError("Tls: insecure verifies nothing, so it cannot be combined with ca_file or server_name")


@dataclass(frozen=True, slots=True)
class Security:
    """How connections are secured. The default is RocketMQ's: plain text, no credentials, any address.

    Args:
      credentials: a `CredentialsSource`, a function of a module, or text (`credentials_source`); None: requests are
        not signed.
      tls: a `Tls`; None: plain text.
      address_map: maps addresses in routes to addresses that can be reached from here: `host:port` to `host:port`, or
        host to host, which keeps the port. For brokers behind a gateway or a forwarded port.
      allowed_addresses: where routes may lead: `host` or `host:port`, with `*` as in `*.example.com` or `10.0.*` (which
        matches addresses, not names), or a network (`10.0.0.0/8`). Empty: anywhere. The given name servers and the
        targets of `address_map` are always allowed.

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
            raise LocalError("allowed_addresses is one text, and must be a list of texts")
        object.__setattr__(self, "allowed_addresses", tuple(self.allowed_addresses))
        for pattern in self.allowed_addresses:
            AddressPattern.parse(pattern)

    @property
    def source(self) -> CredentialsSource | None:
        """The credentials source, or None."""
        return credentials_source(self.credentials)

    def _pairs(self) -> tuple[tuple[str, str], ...]:
        return tuple(self.address_map)  # type: ignore[arg-type]  # a tuple since __post_init__

    def mapped(self, address: str) -> str:
        """The address to connect to for an address in a route. Raises `LocalError` if it is not an address."""
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
        """Whether an address in a route, before it is mapped, may be connected to. Raises as `mapped` does."""
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
            raise LocalError(f"address_map: {shown_address(text)!r} is neither a host nor host:port") from error
    if (split_port(origin)[1] is None) != (split_port(target)[1] is None):
        raise LocalError(f"address_map: {origin!r} to {target!r}: give a port for both or for neither")


UNSECURED: Final = Security()
"""RocketMQ's default."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a command line; `from_arguments` reads them. None of them accepts a secret."""
    group = parser.add_argument_group("security")
    group.add_argument(
        "--credentials",
        metavar="SOURCE",
        help=f"environment ({ACCESS_KEY_VARIABLE}, {SECRET_KEY_VARIABLE}), file:PATH or function:MODULE:NAME",
    )
    group.add_argument("--tls", action="store_true", help="use TLS, verified by the system's authorities")
    group.add_argument("--tls_ca_file", metavar="PEM", help="use TLS, verified by these authorities")
    group.add_argument("--tls_certificate_file", metavar="PEM", help="our certificate, for servers that request one")
    group.add_argument("--tls_key_file", metavar="PEM", help="the certificate's key, if it is in another file")
    group.add_argument(
        "--tls_key_password_variable", metavar="NAME", help="the environment variable with the key's password"
    )
    group.add_argument("--tls_server_name", metavar="NAME", help="the name that certificates must be for")
    group.add_argument("--tls_insecure", action="store_true", help="use TLS that verifies nothing")
    group.add_argument(
        "--address_map",
        metavar="A=B",
        action="append",
        default=[],
        help="connect to B if a route says A; repeatable",
    )
    group.add_argument(
        "--allowed_addresses", metavar="A,B", help="hosts, patterns and networks that routes may lead to; default: any"
    )


def from_arguments(args: argparse.Namespace) -> Security:
    """The `Security` for the options of `add_arguments`. Raises `LocalError`."""
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
        raise LocalError(f"--{name} has no effect without --tls_certificate_file: set both")
    address_map = {}
    for pair in args.address_map:
        origin, equals, target = pair.partition("=")
        if not equals or not origin or not target:
            raise LocalError(
                f"--address_map {shown_address(pair)!r}: it must be A=B, e.g. 10.0.0.5:10911=localhost:30911"
            )
        address_map[origin] = target
    allowed = [part.strip() for part in (args.allowed_addresses or "").split(",") if part.strip()]
    return Security(args.credentials, tls, address_map, tuple(allowed))
