"""Rules that follow their source: one matcher for all threads of a process, replaced when the source has changed."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import pickle
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol

import platformdirs

from rmqio.errors import LocalError
from rmqio.rules.engine import Matcher, compile_rules, compile_usable
from rmqio.rules.errors import Limits, Problem, RuleError
from rmqio.rules.ir import Rule
from rmqio.rules.match.patterns import DatabaseStore

# Compiled patterns in a folder, by their content: the processes of a machine compile each set of patterns once.

_DIGEST_BYTES: Final = 32
_KEPT_S: Final = 30 * 86_400


def default_folder() -> Path:
    """The folder: of RMQIO_CACHE, else in the user's cache folder."""
    given = os.environ.get("RMQIO_CACHE")
    return (Path(given) if given else platformdirs.user_cache_path("rmqio")) / "rules"


class FolderStore:
    """Files by key, each with its digest in front. A file that is damaged is made again.

    The folder belongs to the user, and nobody else may write to it: what is in it is run. If it cannot be used, each
    process compiles for itself. Files that nobody has read for 30 days are deleted.
    """

    def __init__(self, folder: Path | str | None = None) -> None:
        self.folder = default_folder() if folder is None else Path(folder)

    def get(self, key: str, build: Callable[[], bytes]) -> bytes:
        """Returns what is stored, or builds it, once even if several processes ask."""
        try:
            self._require_own()
            path = self.folder / key
            found = _read(path)
            if found is not None:
                return found
            with self._locked(key):
                found = _read(path)
                if found is None:
                    found = build()
                    self._write(path, found)
                return found
        except OSError as error:
            _LOGGER.warning("compiled rules are not shared: %s", error)
            return build()

    def _require_own(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self.folder.stat()
        if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"others may write to {self.folder}")

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        with (self.folder / f"lock-{key[:1]}").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _write(self, path: Path, raw: bytes) -> None:
        """Others see all of the file or nothing."""
        temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            temporary.write_bytes(hashlib.sha256(raw).digest() + raw)
            temporary.replace(path)
        except OSError as error:  # a full disk, for instance
            _LOGGER.warning("compiled rules are not kept: %s", error)
            with suppress(OSError):
                temporary.unlink()
        oldest = time.time() - _KEPT_S
        for each in self.folder.iterdir():
            with suppress(OSError):
                if each.stat().st_mtime < oldest and not each.name.startswith("lock-"):
                    each.unlink()


def _read(path: Path) -> bytes | None:
    try:
        whole = path.read_bytes()
    except FileNotFoundError:
        return None
    digest, raw = whole[:_DIGEST_BYTES], whole[_DIGEST_BYTES:]
    if hashlib.sha256(raw).digest() != digest:
        return None
    with suppress(OSError):
        os.utime(path)
    return raw


_LOGGER: Final = logging.getLogger("rmqio.rules")
_MOST: Final = 8
OnBadRule = Literal["keep_previous", "skip", "fail"]


class RuleSource(Protocol):
    """A source of rules. It is picklable."""

    def load(self) -> tuple[Rule, ...]:
        """Returns all rules. Raises `RuleError`."""

    def signature(self) -> str:
        """Returns a text that changes when the source does; cheap."""


class Counts(NamedTuple):
    """Reloads since they were last asked for."""

    reloads: int = 0
    failures: int = 0
    left_out: int = 0
    """Rules, at each load."""


class LiveRules:
    """The rules of a source, as they are now.

    `pinned` is called before a bundle. From half of `refresh_s` after the last look at the source, it starts a look in
    the background, so that a busy pipeline never waits; from `refresh_s` on, it looks itself, so that no bundle begins
    with rules that are older. Rules that cannot be used leave those before in force, and are logged once.
    """

    def __init__(
        self,
        source: RuleSource,
        *,
        refresh_s: float,
        on_bad_rule: OnBadRule,
        limits: Limits,
        store: DatabaseStore | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Loads the rules. Raises what the source and the compiler raise."""
        self._source = source
        self._refresh_s = refresh_s
        self._fails = on_bad_rule == "fail"
        self._skips = on_bad_rule == "skip"
        self._limits = limits
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        self._reported = ""
        self._counts = Counts()
        self._signature = source.signature()  # before the load: a change between the two is seen at the next look
        self.left_out: tuple[Problem, ...] = ()
        """What is wrong with rules that are left out."""
        self.matcher = self._compiled(None)
        # The set has been there: from now on, no files are no mistake, but rules that were deleted.
        self._source = getattr(source, "after_start", lambda: source)()
        self._looked_at = clock()
        _note_in_force(self.matcher)

    def pinned(self) -> Matcher:
        """Returns the matcher for a bundle. With on_bad_rule="fail", raises the failure of the newest rules."""
        age = self._clock() - self._looked_at
        if age >= self._refresh_s:
            with self._lock:
                if self._clock() - self._looked_at >= self._refresh_s:
                    self._look()
        elif age >= self._refresh_s / 2 and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._look_behind, name="rmqio-rules", daemon=True)
            self._thread.start()
        if self._fails and self._failure is not None:
            raise self._failure
        return self.matcher

    def taken_counts(self) -> Counts:
        """Returns the counts, and begins anew."""
        counts, self._counts = self._counts, Counts()
        return counts

    def _compiled(self, previous: Matcher | None) -> Matcher:
        """The rules of the source. It notes those that are left out."""
        if not self._skips:
            return compile_rules(self._source.load(), limits=self._limits, store=self._store, previous=previous)
        matcher, problems = compile_usable(self._source, limits=self._limits, store=self._store, previous=previous)
        self.left_out = problems
        if problems:
            self._count(left_out=len(problems))
            _LOGGER.warning("rules are left out:\n%s", RuleError(problems))
        return matcher

    def _count(self, *, reloads: int = 0, failures: int = 0, left_out: int = 0) -> None:
        before = self._counts
        self._counts = Counts(before.reloads + reloads, before.failures + failures, before.left_out + left_out)

    def _look_behind(self) -> None:
        if self._lock.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._lock.release()

    def _look(self) -> None:
        """Looks at the source, and replaces the matcher if it has changed. The lock is held."""
        try:
            signature = self._source.signature()
            if signature != self._signature:
                matcher = self._compiled(self.matcher)
                self._signature = signature
                if matcher.version != self.matcher.version:
                    self.matcher = matcher  # one assignment: a bundle has the one or the other
                    self._count(reloads=1)
                    _note_in_force(matcher)
            self._failure, self._reported = None, ""
        except Exception as error:  # noqa: BLE001  # a source can raise anything; the rules before stay
            self._failure = error
            text = f"{type(error).__name__}: {error}"
            if text != self._reported:  # once for each failure, and not at each look
                self._reported = text
                self._count(failures=1)
                _LOGGER.error("the rules of version %s stay in use: %s", self.matcher.version, error)
        self._looked_at = self._clock()


def _note_in_force(matcher: Matcher) -> None:
    if matcher.rules:
        _LOGGER.info("%d rules are in force, version %s", len(matcher.rules), matcher.version)
    else:  # a topic that is empty, or whose rules have aged out
        _LOGGER.warning("there are no rules, version %s: nothing matches until there are some", matcher.version)


_LIVE: dict[str, LiveRules] = {}
_LIVE_LOCK: Final = threading.Lock()


def live_rules(source: RuleSource, make: Callable[[], LiveRules], *parts: Any) -> LiveRules:
    """Returns the live rules of this process for a source and other settings, which it makes if there are none."""
    try:
        content = pickle.dumps((source, parts))
    except Exception as error:  # a user's source can raise anything
        raise LocalError(
            f"the rules cannot go to workers: {type(source).__name__} does not pickle ({error})"
        ) from error
    key = f"{os.getpid()} {hashlib.sha256(content).hexdigest()}"
    with _LIVE_LOCK:
        found = _LIVE.get(key)
        if found is None:
            while len(_LIVE) >= _MOST:
                del _LIVE[next(iter(_LIVE))]
            found = _LIVE[key] = make()
        return found
