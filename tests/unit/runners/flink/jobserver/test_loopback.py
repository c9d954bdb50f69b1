"""A job server's ports are on the loopback interface only."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import pytest

from rmqio.runners.flink.jobserver_command import CLASS_FILE, NotPatchable, bound_to_its_address, loopback_jar

BUILDER = "vendor/NettyServerBuilder"


def utf8(text: str) -> bytes:
    return struct.pack(">BH", 1, len(text)) + text.encode()


def class_file(builder_method: str = "forPort", calls: int = 1) -> bytes:
    """The constants that matter, a long (which counts twice) before them, and calls of forPort(address.getPort())."""
    constants = [
        (1, struct.pack(">Bq", 5, 42)),
        (3, utf8("java/net/InetSocketAddress")),
        (4, struct.pack(">BH", 7, 3)),
        (5, utf8("getPort")),
        (6, utf8("()I")),
        (7, struct.pack(">BHH", 12, 5, 6)),
        (8, struct.pack(">BHH", 10, 4, 7)),
        (9, utf8(BUILDER)),
        (10, struct.pack(">BH", 7, 9)),
        (11, utf8(builder_method)),
        (12, utf8(f"(I)L{BUILDER};")),
        (13, struct.pack(">BHH", 12, 11, 12)),
        (14, struct.pack(">BHH", 10, 10, 13)),
        (15, utf8("maxInboundMessageSize")),  # of the same descriptor, and not to be changed with it
        (16, struct.pack(">BHH", 12, 15, 12)),
        (17, struct.pack(">BHH", 10, 10, 16)),
    ]
    call = struct.pack(">BBHBH", 0x2B, 0xB6, 8, 0xB8, 14)
    head = struct.pack(">IIH", 0xCAFEBABE, 52, 18)
    return head + b"".join(constant for _, constant in constants) + b"before" + call * calls + b"after"


def test_the_server_is_bound_to_its_address_and_nothing_else_changes() -> None:
    before = class_file()
    found = bound_to_its_address(before)
    added = (
        utf8("forAddress")
        + utf8(f"(Ljava/net/SocketAddress;)L{BUILDER};")
        + struct.pack(">BHH", 12, 18, 19)
        + struct.pack(">BHH", 10, 10, 20)
    )
    call = struct.pack(">BBBBBH", 0x2B, 0, 0, 0, 0xB8, 21)
    assert struct.unpack_from(">H", found, 8) == (22,)
    assert found[10:] == before[10 : before.index(b"before")] + added + b"before" + call + b"after"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (class_file("forAddress"), "another way"),
        (class_file(calls=0), "once"),
        (class_file(calls=2), "once"),
        (b"no class file at all", "not a class file"),
        (class_file()[:40], "cannot be read"),
        (b"", "cannot be read"),
    ],
)
def test_a_class_that_is_not_the_one_that_we_know_is_left_alone(content: bytes, reason: str) -> None:
    with pytest.raises(NotPatchable, match=reason):
        bound_to_its_address(content)


def test_the_changed_class_is_a_jar_of_its_own_and_is_found_in_any_of_the_jars(tmp_path: Path) -> None:
    for name, entry in (("a.jar", "other.class"), ("b.jar", CLASS_FILE)):
        with zipfile.ZipFile(tmp_path / name, "w") as jar:
            jar.writestr(entry, class_file())
    kept, other = tmp_path / "kept", tmp_path
    made = loopback_jar([tmp_path / "a.jar", tmp_path / "b.jar"], kept, other)
    with zipfile.ZipFile(made) as jar:
        assert jar.namelist() == [CLASS_FILE]
        assert jar.read(CLASS_FILE) == bound_to_its_address(class_file())
    with pytest.raises(NotPatchable, match="there is no"):
        loopback_jar([tmp_path / "a.jar"], kept, other)
    (tmp_path / "broken.jar").write_bytes(b"not a zip file")
    with pytest.raises(NotPatchable, match=r"broken\.jar cannot be read"):
        loopback_jar([tmp_path / "broken.jar"], kept, other)


def test_the_jar_is_kept_as_it_is_and_made_again_if_it_is_another(tmp_path: Path) -> None:
    """A JVM that maps its classes from a file compares the times of the jars."""
    with zipfile.ZipFile(tmp_path / "a.jar", "w") as jar:
        jar.writestr(CLASS_FILE, class_file())
    kept = tmp_path / "kept"
    made = loopback_jar([tmp_path / "a.jar"], kept, tmp_path)
    content, written = made.read_bytes(), made.stat().st_mtime_ns
    assert loopback_jar([tmp_path / "a.jar"], kept, tmp_path).stat().st_mtime_ns == written
    made.write_bytes(content[:-1])
    assert loopback_jar([tmp_path / "a.jar"], kept, tmp_path).read_bytes() == content
    assert [*kept.iterdir()] == [made]


def test_without_a_folder_that_keeps_it_the_jar_is_in_the_other_one(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.jar", "w") as jar:
        jar.writestr(CLASS_FILE, class_file())
    (tmp_path / "file").touch()
    assert loopback_jar([tmp_path / "a.jar"], tmp_path / "file" / "below", tmp_path).parent == tmp_path
