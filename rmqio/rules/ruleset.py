"""A set of rules: its source (files, or a topic), its format, and what its fields are in the events."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import pickle
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

from rmqio import security as security_options
from rmqio.errors import LocalError, OffsetOutOfRange, RmqioError
from rmqio.interfaces import ClientFactory, OffsetQuery, QueueClient
from rmqio.model import MessageFilter, MessageQueue, Record
from rmqio.rules.errors import Problem, RuleError, without_problems
from rmqio.rules.formats import Mapping, Parsed, base, check_format, parse
from rmqio.rules.formats.base import RuleText
from rmqio.rules.ir import ANYTHING, CorrelationRule, Rule, text_of

# Files of rules, read all or nothing.
#
# A manifest names the files and their hashes: what does not agree with it is not read. Without a manifest, files that
# change while they are read are read again, and the folder is resolved once, so that a link to it can be replaced.

MANIFEST: Final = "manifest.json"
_TRIES: Final = 5
_PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Files:
    """Files by patterns (`rules/*.yml`, `rules/**/*.yml`), folders, or a manifest (`rules/manifest.json`)."""

    patterns: tuple[str, ...]
    may_be_empty: bool = False
    """Whether a pattern may have no files any more, as long as its folder is there."""

    def texts(self) -> tuple[RuleText, ...]:
        """See `Source`."""
        for number in range(_TRIES):
            if number:
                time.sleep(_PAUSE_S)
            before = self.signature()
            try:
                found = tuple(RuleText(name, _read(path, name, digest)) for name, path, digest in self._found())
            except FileNotFoundError:  # renamed or removed since it was listed
                continue
            if self.signature() == before:
                return found
        raise RuleError((Problem(self.patterns[0], 0, "", "the files change while they are read: try again later"),))

    def signature(self) -> str:
        """See `Source`. It is made of names, sizes, times and inodes, and of the text of manifests."""
        parts: list[Any] = []
        for pattern in self.patterns:
            if _is_manifest(pattern):
                manifest = Path(pattern)
                try:
                    parts.append(manifest.read_bytes() if manifest.is_file() else b"")
                except OSError as error:
                    raise RuleError((Problem(pattern, 0, "", f"cannot read it: {error.strerror}"),)) from error
        for name, path, digest in self._found(is_checked=False):
            try:
                status = os.stat(path)
            except FileNotFoundError:
                parts.append((name, None))
            except OSError as error:
                raise RuleError((Problem(name, 0, "", f"cannot read it: {error.strerror}"),)) from error
            else:
                parts.append((name, digest, status.st_size, status.st_mtime_ns, status.st_ino))
        return hashlib.blake2b(repr(parts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()

    def _found(self, *, is_checked: bool = True) -> Iterator[tuple[str, str, str | None]]:
        """Yields (name, path, hash) of each file once, in order of names. Raises `RuleError` if there is none."""
        found: dict[str, tuple[str, str, str | None]] = {}
        for pattern in self.patterns:
            some = list(_of_manifest(pattern, is_checked) if _is_manifest(pattern) else _matching(pattern))
            if not some and is_checked:
                if not self.may_be_empty:
                    raise RuleError((Problem(pattern, 0, "", "there is no such file of rules"),))
                if not os.path.isdir(folder := _folder_of(pattern)):
                    raise RuleError((Problem(pattern, 0, "", f"the folder {folder} is gone"),))
            found |= {os.path.abspath(path): (name, path, digest) for name, path, digest in some}
        yield from sorted(found.values())


def write_manifest(path: str | Path, files: Sequence[str | Path]) -> None:
    """Writes a manifest of files, which are in its folder or below, at once: readers see the old one or the new one.

    Put the files in place first. Raises `LocalError` for a file that is elsewhere.
    """
    target = Path(path)
    if not _is_manifest(str(target)):
        raise LocalError(f"{target}: a manifest must be named {MANIFEST}, or ends with .{MANIFEST}")
    found = {}
    for each in sorted(map(Path, files)):
        try:
            name = each.resolve().relative_to(target.parent.resolve()).as_posix()
        except ValueError:
            raise LocalError(f"{each} is not in the folder of the manifest, {target.parent}") from None
        found[name] = hashlib.sha256(each.read_bytes()).hexdigest()
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=target.parent, delete=False) as file:
        json.dump({"files": found}, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.chmod(file.name, 0o644)
    os.replace(file.name, target)


def _is_manifest(pattern: str) -> bool:
    name = os.path.basename(pattern)
    return name == MANIFEST or name.endswith(f".{MANIFEST}")


def _matching(pattern: str) -> Iterator[tuple[str, str, str | None]]:
    if os.path.isdir(pattern):
        raise RuleError((Problem(pattern, 0, "", "this is a folder: write which files of it, as in rules/*.yml"),))
    is_pattern = glob.has_magic(pattern)
    folder = _head(pattern)
    base = _folder_of(pattern)
    rest = os.path.relpath(pattern, folder) if folder else pattern
    if is_pattern:
        _require_readable(pattern, base)
    names = glob.glob(rest, root_dir=base, recursive=True) if is_pattern else [rest]
    for name in names:
        path = os.path.join(base, name)
        shown = os.path.join(folder, name)
        if not _is_manifest(name) and _is_there(path, shown):
            yield shown, path, None


def _require_readable(pattern: str, folder: str) -> None:
    """Raises `RuleError` for a folder that cannot be listed: `glob` finds no files there, as if they were deleted."""
    try:
        with os.scandir(folder):
            return
    except (FileNotFoundError, NotADirectoryError):  # no files
        return
    except OSError as error:
        raise RuleError((Problem(pattern, 0, "", f"cannot list {folder}: {error.strerror}"),)) from error


def _is_there(path: str, name: str) -> bool:
    """Returns whether there is a file. Raises `RuleError` for what is not one, but was meant to be: not for folders."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        if os.path.islink(path):
            reason = f"this is a link to a file that is not there: {os.readlink(path)}"
            raise RuleError((Problem(name, 0, "", reason),)) from None
        return False
    except OSError as error:
        raise RuleError((Problem(name, 0, "", f"cannot read it: {error.strerror}"),)) from error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise RuleError((Problem(name, 0, "", "this is not a regular file"),))
    return stat.S_ISREG(mode)


def _head(pattern: str) -> str:
    """The part of a pattern before its first folder or name that is a pattern; of a path, its folder."""
    head = pattern if glob.has_magic(pattern) else os.path.dirname(pattern)
    while glob.has_magic(head):
        head = os.path.dirname(head)
    return head


def _folder_of(pattern: str) -> str:
    return os.path.realpath(_head(pattern) or os.curdir)


def _of_manifest(pattern: str, is_checked: bool) -> Iterator[tuple[str, str, str | None]]:
    folder = os.path.dirname(pattern)
    base = os.path.realpath(folder) if folder else os.path.realpath(os.curdir)
    try:
        files = json.loads(Path(base, os.path.basename(pattern)).read_text("utf-8-sig"))["files"]
        found = [(str(name), str(digest)) for name, digest in files.items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if not is_checked:
            return
        reason = f"this is not a manifest ({error}): write it with rmqio rules check FILES --manifest {pattern}"
        raise RuleError((Problem(pattern, 0, "", reason),)) from error
    for name, digest in found:
        path = os.path.realpath(os.path.join(base, name))
        if not path.startswith(base + os.sep):
            raise RuleError((Problem(pattern, 0, "", f"{name!r} is not in the folder of the manifest"),))
        yield os.path.join(folder, name), path, digest


def _read(path: str, name: str, digest: str | None) -> str:
    try:
        raw = Path(path).read_bytes()
    except FileNotFoundError:
        if digest is None:
            raise
        raise RuleError((Problem(name, 0, "", "the manifest names this file, and it is not there"),)) from None
    except OSError as error:
        raise RuleError((Problem(name, 0, "", f"cannot read it: {error.strerror}"),)) from error
    if digest is not None and hashlib.sha256(raw).hexdigest() != digest:
        raise RuleError((Problem(name, 0, "", "this is not the file of the manifest: their hashes differ"),))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise RuleError((Problem(name, line, "", f"this is not UTF-8: byte {error.start} is not"),)) from error


# A topic of rules: the key of a message is the name of a file, its body the text; the newest of each name counts.
#
# A message without a body removes the text. Messages that retention or compaction has deleted are not there any more:
# rules age out with their topic.

_WAIT_MS: Final = 500


@dataclass(slots=True)
class _Seen:
    """This process's knowledge of a topic.

    Attributes:
      queues: those that it has had.
      newest: of each queue that was read to its end, the end, and the store time of its last message (Unix ms).
      refills: how often messages that were read had been replaced.
    """

    queues: set[MessageQueue] = field(default_factory=set)
    newest: dict[MessageQueue, tuple[int, int]] = field(default_factory=dict)
    refills: int = 0


_SEEN: Final[dict[bytes, _Seen]] = {}
"""By topic and client."""


@dataclass(frozen=True, slots=True)
class Topic:
    """See the module. `timeout_s`: how long one reading may take; `max_bytes`: what all texts may have together."""

    topic: str
    factory: ClientFactory
    timeout_s: float = 30.0
    max_bytes: int = 256 << 20

    def texts(self) -> tuple[RuleText, ...]:
        """See `Source`. Reads the topic to the end that it has now. Raises `RmqioError` if a broker is away."""
        client = self.factory.queue_client()
        try:
            newest: dict[str, tuple[tuple[int, MessageQueue, int], Record]] = {}
            problems: list[Problem] = []
            deadline = time.monotonic() + self.timeout_s
            last: dict[MessageQueue, tuple[int, int]] = {}
            ranges = self._ranges(client)
            self._refills(client)
            for queue, begin, end in ranges:
                record = self._read(client, queue, begin, end, deadline, newest, problems)
                if record is not None and record.queue_offset == end - 1:
                    last[queue] = end, record.store_timestamp_ms
            self._seen().newest = last
        finally:
            client.close()
        texts = []
        for name, (_, record) in sorted(newest.items()):
            if record.body:
                try:
                    texts.append(RuleText(name, record.body.decode("utf-8-sig")))
                except UnicodeDecodeError as error:
                    reason = f"this is not UTF-8: byte {error.start} is not ({_place(record)})"
                    problems.append(Problem(name, 0, "", reason))
        if sum(len(record.body) for _, record in newest.values()) > self.max_bytes:
            problems.append(Problem(self.topic, 0, "", f"the texts have more than {self.max_bytes:,} bytes"))
        if problems:
            raise RuleError(tuple(problems))
        return tuple(texts)

    def signature(self) -> str:
        """See `Source`. It is made of the first and last offsets of all queues: one question to each broker.

        A topic that was deleted, created again and filled to the same offsets has newer messages at these offsets.
        """
        client = self.factory.queue_client()
        try:
            found = self._ranges(client), self._refills(client)
        finally:
            client.close()
        return hashlib.blake2b(repr(found).encode(), digest_size=16).hexdigest()

    def _refills(self, client: QueueClient) -> int:
        """Returns how often what was read had been replaced by newer messages at the same offsets."""
        seen = self._seen()
        newest = seen.newest
        ends = client.look_up([OffsetQuery(queue, "time", time_ms + 1) for queue, (_, time_ms) in newest.items()])
        if any(isinstance(each, int) and each < end for each, (end, _) in zip(ends, newest.values(), strict=True)):
            seen.newest = {}
            seen.refills += 1
        return seen.refills

    def _seen(self) -> _Seen:
        return _SEEN.setdefault(hashlib.sha256(pickle.dumps(self)).digest(), _Seen())

    def _ranges(self, client: QueueClient) -> list[tuple[MessageQueue, int, int]]:
        queues = sorted(client.queues(self.topic, refresh=True))
        self._check_route(queues)
        newest = self._seen().newest
        asked: list[OffsetQuery] = []
        for queue in queues:
            end, _ = newest.get(queue, (0, 0))  # a replica that is behind would bring older rules back
            asked += [OffsetQuery(queue, "min"), OffsetQuery(queue, "max", at_least=end)]
        answers = client.look_up(asked)
        numbers: list[int] = []
        for each in answers:
            if isinstance(each, RmqioError):
                raise each
            assert each is not None
            numbers.append(each)
        return list(zip(queues, numbers[::2], numbers[1::2], strict=True))

    def _check_route(self, queues: list[MessageQueue]) -> None:
        """Raises `RuleError` if queues are gone that this process has seen: their rules would go, too."""
        seen = self._seen().queues
        gone = seen.difference(queues)
        if gone:
            reason = (
                f"{len(gone)} of its queues, such as {min(gone)}, are not in the route any more: their broker is down. "
                "If they were removed on purpose, start again"
            )
            raise RuleError((Problem(self.topic, 0, "", reason),))
        seen.update(queues)

    def _read(
        self,
        client: QueueClient,
        queue: MessageQueue,
        begin: int,
        end: int,
        deadline: float,
        newest: dict[str, tuple[tuple[int, MessageQueue, int], Record]],
        problems: list[Problem],
    ) -> Record | None:
        """Reads a queue, and returns its last message."""
        last: Record | None = None
        if begin >= end:
            return last
        reader = client.open_reader(queue, begin, message_filter=MessageFilter())
        try:
            while reader.position < end:
                if time.monotonic() > deadline:
                    reason = f"{queue} was not read to its end within {self.timeout_s:g} s"
                    raise RuleError((Problem(self.topic, 0, "", reason),))
                client.wait([reader], _WAIT_MS)
                try:
                    fetched = reader.poll()
                except OffsetOutOfRange as error:
                    reader.seek(error.minimum)
                    continue
                if fetched is None:
                    continue
                problems += [Problem(self.topic, 0, "", str(each)) for each in fetched.corrupt]
                for record in fetched.records:
                    self._take(record, newest, problems)
                    last = record
        finally:
            reader.close()
        return last

    def _take(
        self,
        record: Record,
        newest: dict[str, tuple[tuple[int, MessageQueue, int], Record]],
        problems: list[Problem],
    ) -> None:
        if not record.keys:
            reason = f"a message of rules needs a key, which is the name of its file ({_place(record)})"
            problems.append(Problem(self.topic, 0, "", reason))
            return
        name = record.keys[0]
        place = (record.store_timestamp_ms, record.queue, record.queue_offset)
        if name not in newest or newest[name][0] < place:
            newest[name] = place, record


def _place(record: Record) -> str:
    return f"{record.queue}, offset {record.queue_offset}"


# The protocol of sources. A source is a picklable value; it holds no files or connections.


class Source(Protocol):
    """Texts of rules that change. Picklable."""

    def texts(self) -> tuple[RuleText, ...]:
        """Returns all texts, of one moment. Raises `RuleError` if they cannot be read as a whole."""
        ...

    def signature(self) -> str:
        """Returns a text that changes when the texts do. It is much cheaper than reading them."""
        ...


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Rules that can change. A value: it is picklable, and holds no files or connections.

    Make it by `from_files`, `from_topic` or `of`. A set is valid as a whole, or not at all: `load` raises `RuleError`
    with everything that is wrong.
    """

    source: Source | None = None
    format: str | None = None
    mapping: Mapping = field(default_factory=Mapping)
    fixed: tuple[Rule | CorrelationRule, ...] = ()

    @classmethod
    def from_files(cls, *patterns: str | Path, format: str | None = None, mapping: Any = None) -> RuleSet:
        """Returns the set of files.

        Args:
          patterns: paths, patterns such as `rules/**/*.yml`, or a manifest, `rules/manifest.json`.
          format: sigma, where or json. Default: by the suffix of each file: .yml and .yaml, .sql and .where, .json.
          mapping: fields and log sources, see `Mapping.of`.
        """
        if not patterns:
            raise LocalError("RuleSet.from_files needs the path of a file, or a pattern")
        check_format(format)
        return cls(Files(tuple(map(str, patterns))), format, Mapping.of(mapping))

    @classmethod
    def from_topic(
        cls,
        topic: str,
        *,
        name_server: str | None = None,
        format: str | None = None,
        mapping: Any = None,
        security: security_options.Security | None = None,
        timeout_s: float = 30.0,
        client_factory: ClientFactory | None = None,
    ) -> RuleSet:
        """Returns the set of a topic: a message's key is the name of a file, its body the text; no body removes it.

        Args:
          topic: which; the newest message of each key counts.
          name_server: addresses, as `ReadFromRocketMQ` takes them; default: NAMESRV_ADDR.
          format, mapping: as in `from_files`; the suffix is that of the key.
          security: access keys and TLS.
          timeout_s: how long one reading may take.
          client_factory: instead of `name_server` and `security`.
        """
        check_format(format)
        if client_factory is None:
            from rmqio.client.factory import RemotingClientFactory
            from rmqio.options import options_of_cluster

            client_factory = RemotingClientFactory(options_of_cluster(name_server, security))
        return cls(Topic(topic, client_factory, timeout_s), format, Mapping.of(mapping))

    @classmethod
    def of(cls, rules: Iterable[Rule | CorrelationRule]) -> RuleSet:
        """Returns a set of rules that do not change. Raises `RuleError` for a value that is not known, as a level."""
        fixed = tuple(rules)
        for each in fixed:
            if not isinstance(each, (Rule, CorrelationRule)):
                raise LocalError(f"RuleSet.of takes rules, not {type(each).__name__}; see RuleSet.from_files for texts")
        if problems := tuple(base.problems_of_values(fixed)):
            raise RuleError(problems)
        return cls(fixed=fixed)

    def load(self) -> tuple[Rule, ...]:
        """Returns the rules, without correlations. Raises `RuleError`, or `RmqioError` if the topic cannot be read."""
        return self.loaded().rules

    def correlations(self) -> tuple[CorrelationRule, ...]:
        """Returns the correlations of the set. Raises as `load` does."""
        return self.loaded().correlations

    def after_start(self) -> RuleSet:
        """Returns the set as it is read once it has been read: files may all have been deleted since.

        At first, a pattern without files is an error, since it is likely to be a mistake.
        """
        if isinstance(self.source, Files):
            return replace(self, source=replace(self.source, may_be_empty=True))
        return self

    def loaded(self) -> Parsed:
        """Returns rules and correlations. Raises as `load` does."""
        found = self.parsed()
        if found.problems:
            raise RuleError(found.problems)
        return found

    def parsed(self) -> Parsed:
        """Returns what is valid, and the problems of the rest. Raises only if the source cannot be read."""
        if self.source is None:
            rules = tuple(each for each in self.fixed if isinstance(each, Rule))
            others = tuple(each for each in self.fixed if isinstance(each, CorrelationRule))
            found = Parsed(rules, others)
        else:
            found = parse(self.source.texts(), self.format, self.mapping)
        return Parsed(found.rules, found.correlations, (*found.problems, *base.problems_of(found)))

    def usable(self) -> Parsed:
        """Returns the rules and the correlations with which nothing is wrong, and the problems of the others.

        Raises only if the source cannot be read.
        """
        found = self.parsed()
        rules, correlations = (
            tuple(without_problems(some, found.problems)) for some in (found.rules, found.correlations)
        )
        return Parsed(rules, correlations, found.problems)

    def signature(self) -> str:
        """Returns a text that changes when the set does, without reading the rules."""
        if self.source is None:
            texts = [text_of(each.condition) if isinstance(each, Rule) else "" for each in self.fixed]
            parts = [replace(each, condition=ANYTHING) if isinstance(each, Rule) else each for each in self.fixed]
            return hashlib.blake2b(repr((parts, texts)).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        return f"{self.source.signature()}-{self.format}-{self.mapping.identity()}"
