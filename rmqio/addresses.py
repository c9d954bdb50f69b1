"""Addresses of servers: parsing, and patterns of the addresses that may be connected to."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

from rmqio.errors import LocalError

_NAME: Final = re.compile(r"[\w-]{1,63}(\.[\w-]{1,63})*\.?")
"""A host, also as IPv4, and nothing else: code that stops at another character than we do would connect elsewhere."""
_IPV6: Final = re.compile(r"[0-9A-Fa-f:.]+(%[\w.-]{1,32})?", re.ASCII)
"""`ipaddress` accepts any scope, including characters that end a name for the resolver."""
_PORT: Final = re.compile(r"[0-9]{1,5}")
_HOST_PATTERN: Final = re.compile(r"[\w.*:%-]+")
_PORT_PATTERN: Final = re.compile(r"[0-9*]{1,5}")

_CREDENTIALS: Final = re.compile(r"\A([\w.+-]*:)?.*@", re.DOTALL)
_URL: Final = re.compile(
    r"(?!file:)(?:[A-Za-z][\w+.-]+:|ht+ps?//|[\w+.-]*//[^/]*:|(?:[A-Za-z]:(?=[/\\]))?+.*(?::|//).*@|.*@[^/]*:)",
    re.DOTALL,
)
_WRONG_PORT: Final = re.compile(r"[\w+.\-:]*//(?:\[[^\]]*\]|[^:/\s\[]*):(?!\d*(?:[,;/?#&]|\Z))")
_SCHEME: Final = re.compile(r"(?:[A-Za-z][\w+.\-]*:){1,2}//")
_USER: Final = re.compile(r"[^\s:/]*[:/]|[\w.%+\-]*\Z")
_HOST: Final = re.compile(r"(?:[\w.\-%*]*|\[[\w:.%]*\])(?::\d*)?(?:[,;/?#&].*)?", re.DOTALL)


NO_PORT: Final = "what is behind the host is not the number of a port: is it a password, and the host left out?"


def is_url(text: str) -> bool:
    """Returns whether a text is no path, but a URL other than of a file: also if it is written wrongly."""
    return _URL.match(text) is not None


def require_folder(path: str) -> str:
    """Returns the path of a folder of schemas. Raises `LocalError` for a URL, which is none of a registry."""
    if is_url(path):
        raise LocalError(
            f"{shown_url(path)} is not a folder of schemas: the URL of a registry begins with http:// or https://"
        )
    return path


def wrong_port(url: str) -> int | None:
    """Returns where a port that is no number begins in a URL: it can be a password, if the host is left out."""
    found = _WRONG_PORT.match(url)
    return None if found is None or "@" in url[found.end() :] else found.end()


def password_in(url: str) -> tuple[int, int] | None:
    """Returns where the password of a URL may be, [start, end); None: it has none.

    Only what is certain is no part of it: a scheme, a user before the first colon or slash, a host behind the last @.
    """
    before, at, host = url.rpartition("@")
    if not at:
        port = wrong_port(url)
        return None if port is None else (port, len(url))
    scheme = _SCHEME.match(url)
    if scheme is None or _HOST.fullmatch(host) is None:
        return (0 if scheme is None else scheme.end()), len(url)
    user = _USER.match(before, scheme.end())
    if user is None or (user.end() == len(before) and scheme[0].lower().startswith("http")):  # a token, with HTTP
        return scheme.end(), len(before)
    return None if user.end() == len(before) else (user.end(), len(before))


def require_port(url: str, shown: str) -> None:
    """Raises `LocalError` for a port that is no number. `shown`: the URL without it."""
    if wrong_port(url) is not None:
        raise LocalError(f"{shown}: {NO_PORT}")


def shown_url(url: str) -> str:
    """Returns the URL of a database for a message: scheme, host and database, without credentials and parameters.

    Of a URL that is wrong only the scheme is sure, and what is behind an @, if it is a host: all else is `***`.
    """
    shown, host = _CREDENTIALS.sub(r"\1//", url), url.rpartition("@")[2]
    if host != url and _HOST.fullmatch(host) is None:
        return f"{shown.partition('//')[0]}//***"
    if (port := wrong_port(shown)) is not None:
        return f"{shown[:port]}***"
    return re.split("[?&;#]", shown, maxsplit=1)[0]


def shown_address(address: str) -> str:
    """Returns the text of an address for a message that refuses it: what is before an @ can be a password."""
    before, _, host = address.rpartition("@")
    return f"***@{host}" if before else address


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[ipv6]:port`. Raises `LocalError`."""
    host, _, port = address.rpartition(":")
    found = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not is_host(found) or (found != host and ":" not in found):
        raise LocalError(f"address {shown_address(address)!r} is not host:port")
    if not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
        raise LocalError(f"address {shown_address(address)!r} is not host:port")
    return found, int(port)


def is_host(text: str) -> bool:
    """Whether the text is a name or an IP address (IPv6 without brackets)."""
    if ":" in text:
        return _IPV6.fullmatch(text) is not None and _ip(text) is not None
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return len(text) <= 253 and _NAME.fullmatch(text) is not None


def is_loopback_name(host: str) -> bool:
    """Whether a `Host` of HTTP, with or without a port, is this machine's own: localhost, or an address of loopback.

    Another name can lead here, too (DNS rebinding): the browser then thinks that a page elsewhere may read the answer.
    """
    name = host.rpartition(":")[0] if re.search(r":[0-9]*$", host) and not host.endswith("]") else host
    address = _ip(name.removeprefix("[").removesuffix("]"))
    return name.lower() == "localhost" or (address is not None and address.is_loopback)


def join_address(host: str, port: int | str) -> str:
    """The inverse of `parse_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def canonical_host(host: str) -> str:
    """One form per host: no brackets, lower case, IPv6 in its shortest form."""
    bare = host.removeprefix("[").removesuffix("]").lower()
    return str(_ip(bare) or bare) if ":" in bare else bare


def split_port(text: str) -> tuple[str, str | None]:
    """Host and port of a text in which the port is optional. An IPv6 address with a port is in brackets."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        is_whole = bracket and ":" in host and (not rest or rest[0] == ":")
        return (host, rest[1:] or None) if is_whole else (text, None)
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        return host, port
    return text, None


class AddressPattern(NamedTuple):
    """A network, or a host and an optional port, in which `*` matches anything and nothing else is special."""

    network: ipaddress.IPv4Network | ipaddress.IPv6Network | None
    host: str
    port: str | None

    @classmethod
    def parse(cls, text: str) -> AddressPattern:
        """Parses one pattern. Raises `LocalError`."""
        if "/" in text and "@" not in text:
            try:
                return cls(ipaddress.ip_network(text), "", None)
            except ValueError as error:
                raise LocalError(f"allowed_addresses: {text!r} is not a network: {error}") from error
        host, port = split_port(text)
        if not _HOST_PATTERN.fullmatch(host) or (port is not None and not _PORT_PATTERN.fullmatch(port)):
            shown = shown_address(text)
            raise LocalError(
                f"allowed_addresses: {shown!r} is not a host, host:port or network; * matches anything in the first two"
            )
        return cls(None, canonical_host(host), port)

    def matches(self, host: str, port: int) -> bool:
        """Whether the pattern matches an address."""
        host = canonical_host(host)
        if "%" not in self.host:
            host = host.partition("%")[0]  # the scope of an IPv6 address is the interface, not the target
        if self.network is not None:
            # Never a name: its address can change between this check and the connection.
            ip = _ip(host)
            return ip is not None and ip in self.network
        if self.port is not None and not _glob(self.port, str(port)):
            return False
        is_of_ips = ":" in self.host or (set(self.host) <= set("0123456789.*") and self.host.strip("*") != "")
        if is_of_ips and _ip(host) is None:
            return False  # 10.0.* is not meant for 10.0.example.org
        if ":" in host and ":" not in self.host and self.host.strip("*"):
            return False  # nor a pattern of names for an IPv6 address
        return _glob(self.host, host)


def _glob(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
