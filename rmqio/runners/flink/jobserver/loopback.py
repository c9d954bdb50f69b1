"""Keeps Beam's gRPC servers on the loopback interface.

Beam's job server and the servers that its embedded workers open (control, data, state, logging) use the host in
`--job-host` for their addresses only. They listen on all interfaces: `ServerFactory.InetSocketAddressServerFactory`
calls `NettyServerBuilder.forPort(address.getPort())`, and no option changes that. This is not acceptable: anyone who
reaches the job server's port can run programs here.

We take the class from the jar that is about to run, change that one call to `NettyServerBuilder.forAddress`, and put
the result into a jar that comes first on the class path. Nothing else in the class changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import struct
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

CLASS_FILE: Final = "org/apache/beam/sdk/fn/server/ServerFactory$InetSocketAddressServerFactory.class"

_UTF8, _METHODREF, _NAME_AND_TYPE = 1, 10, 12
_LONG_AND_DOUBLE: Final = (5, 6)
# Bytes after the tag, by tag (JVMS 4.4); Utf8 begins with its length.
_SIZES: Final = {
    3: 4,
    4: 4,
    5: 8,
    6: 8,
    7: 2,
    8: 2,
    9: 4,
    10: 4,
    11: 4,
    12: 4,
    15: 3,
    16: 2,
    17: 4,
    18: 4,
    19: 2,
    20: 2,
}
_MAGIC: Final = 0xCAFEBABE
_POOL_AT: Final = 8
_NOP, _INVOKEVIRTUAL, _INVOKESTATIC = 0x00, 0xB6, 0xB8
_INET_SOCKET_ADDRESS: Final = "java/net/InetSocketAddress"


class NotPatchable(Exception):
    """The class is missing or not the one that we know; the message says what differs."""


def loopback_jar(jars: Iterable[Path], folder: Path, other: Path) -> Path:
    """Return a jar with the changed class of `jars`, to precede them on the class path. Raises NotPatchable.

    Args:
      jars: the class path.
      folder: keeps the jar for later job servers. A JVM maps its classes from a file only if each jar is as it was.
      other: a folder for the jar if that one cannot be written.
    """
    content = bound_to_its_address(_class_file(jars))
    # A jar, not a folder: Beam sends each entry of its class path to a cluster, and Flink accepts only jars.
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as jar:
        jar.writestr(zipfile.ZipInfo(CLASS_FILE), content)  # with a fixed date, so that each jar is the same
    name = f"loopback-{hashlib.blake2b(content, digest_size=8).hexdigest()}.jar"
    kept = folder / name
    with contextlib.suppress(OSError):
        if not kept.exists() or kept.read_bytes() != made.getvalue():
            folder.mkdir(parents=True, exist_ok=True)
            part = kept.with_suffix(f".{os.getpid()}.part")
            part.write_bytes(made.getvalue())
            part.replace(kept)
        return kept
    (other / name).write_bytes(made.getvalue())
    return other / name


def bound_to_its_address(content: bytes) -> bytes:
    """Return the class file with its server bound to the address, not only to the port. Raises NotPatchable."""
    pool = _ConstantPool(content)
    ports = [index for index, owner, name, _ in pool.methods() if (owner, name) == (_INET_SOCKET_ADDRESS, "getPort")]
    builders = [entry for entry in pool.methods() if entry[2] == "forPort" and entry[3].startswith("(I)")]
    if len(ports) != 1 or len(builders) != 1:
        raise NotPatchable(f"{CLASS_FILE} is of a Beam that builds its servers in another way")
    index, _, _, descriptor = builders[0]
    call = struct.pack(">BHBH", _INVOKEVIRTUAL, ports[0], _INVOKESTATIC, index)
    if content.count(call) != 1:
        raise NotPatchable(f"{CLASS_FILE} does not call forPort(address.getPort()) once")
    # Append new constants, since other calls may use the old ones. The address is already on the stack.
    first = pool.count
    name, signature = b"forAddress", b"(Ljava/net/SocketAddress;)" + descriptor.removeprefix("(I)").encode()
    added = (
        struct.pack(">BH", _UTF8, len(name)) + name
        + struct.pack(">BH", _UTF8, len(signature)) + signature
        + struct.pack(">BHH", _NAME_AND_TYPE, first, first + 1)
        + struct.pack(">BHH", _METHODREF, pool.owner_index(index), first + 2)
    )  # fmt: skip
    changed = struct.pack(">BBBBH", _NOP, _NOP, _NOP, _INVOKESTATIC, first + 3)
    body = content[pool.end :].replace(call, changed)
    return content[:_POOL_AT] + struct.pack(">H", first + 4) + content[_POOL_AT + 2 : pool.end] + added + body


def _class_file(jars: Iterable[Path]) -> bytes:
    for jar in jars:
        try:
            with zipfile.ZipFile(jar) as file:
                return file.read(CLASS_FILE)
        except KeyError:
            continue
        except (OSError, zipfile.BadZipFile) as error:
            raise NotPatchable(f"{jar} cannot be read: {error}") from error
    raise NotPatchable(f"there is no {CLASS_FILE}")


class _ConstantPool:
    """The constants of a class file (JVMS 4.4), by index."""

    def __init__(self, content: bytes) -> None:
        try:
            magic, _, self.count = struct.unpack_from(">IIH", content)
            if magic != _MAGIC:
                raise NotPatchable(f"{CLASS_FILE} is not a class file")
            self._entries: dict[int, tuple[int, bytes]] = {}
            at, index = _POOL_AT + 2, 1
            while index < self.count:
                tag = content[at]
                size = 2 + struct.unpack_from(">H", content, at + 1)[0] if tag == _UTF8 else _SIZES[tag]
                self._entries[index] = tag, content[at + 1 : at + 1 + size]
                at += 1 + size
                index += 2 if tag in _LONG_AND_DOUBLE else 1  # those two count twice
            self.end = at
        except (struct.error, IndexError, KeyError) as error:
            raise NotPatchable(f"{CLASS_FILE} cannot be read: {error!r}") from error

    def methods(self) -> Iterator[tuple[int, str, str, str]]:
        """Yield index, class, name and descriptor of each method that is called."""
        for index, (tag, value) in self._entries.items():
            if tag == _METHODREF:
                owner, signature = struct.unpack(">HH", value)
                name, descriptor = struct.unpack(">HH", self._entries[signature][1])
                yield index, self._utf8(self._short(owner)), self._utf8(name), self._utf8(descriptor)

    def owner_index(self, method: int) -> int:
        """Return the index of the constant for the class of a method."""
        return self._short(method)

    def _short(self, index: int) -> int:
        return int(struct.unpack_from(">H", self._entries[index][1])[0])

    def _utf8(self, index: int) -> str:
        return self._entries[index][1][2:].decode()
