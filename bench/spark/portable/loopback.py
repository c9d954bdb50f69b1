"""Beam's job server on the loopback interface only.

Beam's ServerFactory makes an address of the loopback interface and a port, and then has its gRPC servers listen on that
port of all interfaces:

    NettyServerBuilder.forPort(socket.getPort())

Nothing configures that. So the class is put in front of Beam's own on the class path with this call in its place:

    NettyServerBuilder.forAddress(socket)

A constant more and four instructions of the same length: no compiler is needed. Which bytes come in is known, since the
lock has their checksum.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.common.tally import BenchError

CLASS: Final = "org/apache/beam/sdk/fn/server/ServerFactory$InetSocketAddressServerFactory.class"
_JAR: Final = "beam-sdks-java-core-"
_BUILDER: Final = "org/apache/beam/vendor/grpc/v1p60p1/io/grpc/netty/NettyServerBuilder"
_OLD: Final = ("java/net/InetSocketAddress", "getPort", "()I"), (_BUILDER, "forPort", f"(I)L{_BUILDER};")
_NEW: Final = "forAddress", f"(Ljava/net/SocketAddress;)L{_BUILDER};"

_UTF8, _CLASS, _METHOD, _NAME_AND_TYPE = 1, 7, 10, 12
_SIZES: Final = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4}
"""Bytes behind the tag, of all constants but texts (JVMS 4.4)."""
_WIDE: Final = (5, 6)
"""A long or a double takes two numbers of the pool."""
_ALOAD_1, _NOP, _INVOKEVIRTUAL, _INVOKESTATIC = 0x2B, 0x00, 0xB6, 0xB8


def write_class(jars: Sequence[Path], folder: Path) -> None:
    """Write the class into a folder that goes before `jars` on the class path. Raises `BenchError`."""
    for jar in jars:
        if jar.name.startswith(_JAR):
            with zipfile.ZipFile(jar) as archive:
                content = archive.read(CLASS)
            target = folder / CLASS
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(on_loopback(content))
            return
    raise BenchError(f"no {_JAR}*.jar among the jars of the job server: resolve its lock anew")


def on_loopback(content: bytes) -> bytes:
    """The class file with the other call. Raises `BenchError` if it is not what is expected."""
    constants, end = _constants(content)
    number = len(constants)  # of the next constant; the first has the number 1
    owner = _find(constants, _CLASS, _BUILDER)
    get_port, for_port = (_find(constants, _METHOD, *method) for method in _OLD)
    name, descriptor = _NEW
    added = [
        struct.pack(">BH", _UTF8, len(name)) + name.encode(),
        struct.pack(">BH", _UTF8, len(descriptor)) + descriptor.encode(),
        struct.pack(">BHH", _NAME_AND_TYPE, number, number + 1),
        struct.pack(">BHH", _METHOD, owner, number + 2),
    ]
    before = struct.pack(">BBHBH", _ALOAD_1, _INVOKEVIRTUAL, get_port, _INVOKESTATIC, for_port)
    after = struct.pack(">BBBBBH", _ALOAD_1, _NOP, _NOP, _NOP, _INVOKESTATIC, number + 3)
    if content.count(before) != 1:
        raise BenchError(f"{CLASS} does not open its port where expected: resolve the lock of Beam 2.62.0")
    head = content[:8] + struct.pack(">H", number + len(added)) + content[10:end]
    return head + b"".join(added) + content[end:].replace(before, after)


def _constants(content: bytes) -> tuple[list[tuple[int, bytes]], int]:
    """Tag and content of each constant, by its number, and where the pool ends."""
    (count,) = struct.unpack_from(">H", content, 8)
    found: list[tuple[int, bytes]] = [(0, b"")]
    at = 10
    while len(found) < count:
        tag = content[at]
        size = 2 + struct.unpack_from(">H", content, at + 1)[0] if tag == _UTF8 else _SIZES[tag]
        found.append((tag, content[at + 1 : at + 1 + size]))
        if tag in _WIDE:
            found.append((0, b""))
        at += 1 + size
    return found, at


def _find(constants: list[tuple[int, bytes]], tag: int, *names: str) -> int:
    """The number of a class or a method. Raises `BenchError` if there is none."""
    for index, constant in enumerate(constants):
        if constant[0] == tag and _names(constants, index) == names:
            return index
    raise BenchError(f"{CLASS} does not use {'.'.join(names)}: resolve the lock of Beam 2.62.0")


def _names(constants: list[tuple[int, bytes]], index: int) -> tuple[str, ...]:
    """The texts that a constant refers to: of a method, its class, its name and its descriptor."""
    tag, content = constants[index]
    if tag == _UTF8:
        return (content[2:].decode(errors="replace"),)
    references = struct.unpack(f">{len(content) // 2}H", content)
    return tuple(name for reference in references for name in _names(constants, reference))
