"""The form of an address; patterns are tested with the rules that use them, in test_rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.addresses import canonical_host, join_address, parse_address, require_folder, split_port
from rmqio.errors import LocalError


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("h:1", ("h", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("::1:65535", ("::1", 65535)),
        ("[fe80::1%eth0]:1", ("fe80::1%eth0", 1)),
        ("broker_a.example.com.:1", ("broker_a.example.com.", 1)),
        ("bücher.example:1", ("bücher.example", 1)),
    ],
)
def test_address_is_split(address: str, parts: tuple[str, int]) -> None:
    assert parse_address(address) == parts


@pytest.mark.parametrize(
    "address",
    [
        "", ":", "h", "h:", ":1", "h:0", "h:65536", "h:x", "h:-1", "h:²", "h:" + "9" * 5000, "a..b:1", ".a:1",
        "x" * 64 + ".com:1", "a." * 127 + "a:1", "10.1.1.1\0.example.com:1", "a b:1", "a/b:1", "[a]:1", "[::1:1",
        "a]:1", "::g:1", "[::1%1\0.example.com]:1", "[::1%]:1", "[::1%a/b]:1", "é" * 60 + ":1", "http://a:1", "a@b:1",
    ],
)  # fmt: skip
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(LocalError, match="is not host:port"):
        parse_address(address)


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_an_error(text: str) -> None:
    try:
        host, port = parse_address(text)
    except LocalError:
        return
    assert parse_address(join_address(host, port)) == (host, port)
    assert canonical_host(canonical_host(host)) == canonical_host(host)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a", ("a", None)),
        ("a:1", ("a", "1")),
        ("::1", ("::1", None)),
        ("[::1]", ("::1", None)),
        ("[::1]:7", ("::1", "7")),
    ],
)
def test_a_port_may_be_missing(text: str, parts: tuple[str, str | None]) -> None:
    assert split_port(text) == parts


@pytest.mark.parametrize(
    "url",
    [
        "http:/u:pw@h", "https//u:pw@h/x", "ftp://u:pw@h", "htps://h", "//u:pw@h", "u:pw@h:1", "u@h:81", "https//h",
        "http;//u:pw@h", "http //pw@h", "http/u:pw@h", "/u:pw@h", "C:/u:pw@h", "u@h:pw/x", "http;//u@pw:h",
    ],
)  # fmt: skip
def test_a_url_is_no_folder(url: str) -> None:
    with pytest.raises(
        LocalError, match="is not a folder of schemas: the URL of a registry begins with http"
    ) as caught:
        require_folder(url)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("folder", ["schemas", "/a@b/c:d", "a//b", "./me@h", "s.v1/x", "C:/a@b"])
def test_a_path_is_a_folder(folder: str) -> None:
    assert require_folder(folder) == folder
