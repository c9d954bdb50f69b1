"""The one way in which tests wait for something, and what they say if it does not come."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import IO, Any, AnyStr, Final, TypeVar

from tests.helpers.compared import compared

T = TypeVar("T")

PATIENCE: Final = "RMQIO_PATIENCE"
"""A variable of the environment: by how much all limits of time grow. The gate measures it, tests/gate/patience.py."""
_LIMIT_S: Final = 240.0
_needed: Final[list[Callable[[], object]]] = []
_CRASHES: Final = frozenset({"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV"})


class Inconclusive(Exception):
    """Raised where a test cannot say whether the product is right: what it needs was ended, or the machine is slow.

    The gate runs the test once more.
    """


def patience() -> float:
    return number_of(PATIENCE, 1.0)


def number_of(name: str, usual: float) -> float:
    """Returns the number in a variable of the environment. Raises `ValueError` if it is none, or not above 0."""
    text = os.environ.get(name, str(usual))
    with contextlib.suppress(ValueError):
        if 0 < (number := float(text)) < float("inf"):
            return number
    raise ValueError(f"{name}={text} is no number above 0")


def at_most(seconds: float) -> int:
    """Returns the limit, in seconds, of what takes so long at most on a quiet machine: for `timeout=`, `wait()` etc."""
    return max(1, round(seconds * patience()))


def runs(process: subprocess.Popen[Any], log: Callable[[], object] = lambda: "") -> Callable[[], bool]:
    """Returns a part of `alive`: a program that ends by itself or crashes is wrong, one that is killed says nothing."""

    def is_up() -> bool:
        status = process.poll()
        if status is None:
            return True
        if status >= 0:
            raise AssertionError(f"it ended with {status}\n{told(log)}")
        name = signal.Signals(-status).name
        raise (AssertionError if name in _CRASHES else Inconclusive)(f"it was ended by {name}\n{told(log)}")

    return is_up


@contextlib.contextmanager
def repeated(act: Callable[[], object], every_s: float) -> Iterator[None]:
    """Does something again and again in a thread of its own, until the end of the block, e.g. sends a message.

    An error ends it, and is raised after the block. If the block fails first, it may be because of that: a note tells.
    """
    is_over, errors = threading.Event(), list[BaseException]()

    def repeat() -> None:
        try:
            while not is_over.wait(every_s):
                act()
        except BaseException as error:  # noqa: BLE001 (the block raises it)
            errors.append(error)

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()

    def end() -> None:
        is_over.set()
        thread.join(at_most(120))

    try:
        yield
    except BaseException as error:
        end()
        if errors:
            error.add_note(f"what was repeated meanwhile has failed: {errors[0]!r}")
        raise
    end()
    assert not thread.is_alive(), f"{act} does not end"
    if errors:
        raise errors[0]


@contextlib.contextmanager
def needed(is_up: Callable[[], object]) -> Iterator[None]:
    """Makes `is_up` a part of `alive` of all waits inside, e.g. of a broker that nothing kills while a test waits."""
    owner = os.getpid()

    def lives() -> object:
        return os.getpid() != owner or is_up()  # a forked child has no processes of its parent

    _needed.append(lives)
    try:
        yield
    finally:
        _needed.remove(lives)


def heard(stream: IO[AnyStr] | None) -> list[AnyStr]:
    """Returns the lines that a program has printed so far, which a thread reads: a wait for them can look elsewhere."""
    assert stream is not None
    lines: list[AnyStr] = []

    def read() -> None:
        with contextlib.suppress(ValueError):  # somebody has closed it
            for line in stream:
                lines.append(line)

    threading.Thread(target=read, daemon=True).start()
    return lines


def missing(wanted: Iterable[object], found: Iterable[object]) -> str:
    """Returns which of the wanted ids, rows or messages are not found as often as they are wanted, for `details`."""

    def texts(some: Iterable[object]) -> Counter[str]:
        return Counter(repr(sorted(each.items()) if isinstance(each, dict) else each) for each in some)

    left = sorted((texts(wanted) - texts(found)).elements())
    return f"{len(left)} missing: {', '.join(each[:100] for each in left[:10])}"


def until_found(found: Callable[[], Collection[Any]], wanted: Collection[Any], **others: Any) -> None:
    """Waits until as many are found as are wanted; the error names those that are missing. `others` are of `until`."""
    now: list[Any] = []

    def are_all() -> bool:
        now[:] = found()
        return len(now) >= len(wanted)

    more: dict[str, Any] = {"progress": lambda: len(now), "details": lambda: missing(wanted, now)}
    until(are_all, f"all {len(wanted)}", **more, **others)


def until_up(answers: Callable[[], T], what: str, **others: Any) -> T:
    """Waits for a server of others, as `until` does. That it does not come up says nothing of the product."""
    try:
        return until(answers, what, **others)
    except AssertionError as error:
        late = str(error)
    raise Inconclusive(f"no server: {late}")  # not after the assertion, which would make it wrong


def settled(value: Callable[[], T], what: str, looks: int = 40) -> T:
    """Returns a value that nothing tells the end of, once so many looks in a row have found the same."""
    found = [value()]

    def is_still() -> bool:
        found.append(value())
        return found[-looks:] == [found[-1]] * looks

    until(is_still, f"the last change of {what}", progress=lambda: found[-1], details=lambda: found[-looks:])
    return found[-1]


def until(
    condition: Callable[[], T],
    what: str,
    *,
    progress: Callable[[], object] = lambda: None,
    alive: Sequence[Callable[[], object]] = (),
    details: Callable[[], object] = lambda: "",
    still_s: float = 60.0,
    pause_s: float = 0.1,
) -> T:
    """Waits until a condition holds, and returns what it returned.

    Args:
      condition: it holds if its result is true.
      what: is waited for; a part of the error.
      progress: as long as its result changes, this goes on, for four minutes or `still_s` at most.
      alive: each returns whether something runs that this needs, e.g. a broker, or raises an error, e.g. of a job that
        has failed. The condition is asked once more then, before the wait ends with it.
      details: are a part of the error, e.g. the ids that are missing. So are the values that a lambda compares.
      still_s: for so long nothing may change on a quiet machine.
      pause_s: between two looks; the first ones follow each other more quickly.

    Raises:
      AssertionError: nothing changed for `still_s`, though everything lives: the product is wrong. One look that took
        so long says nothing by itself: there is another one, after a gap.
      Inconclusive: something of `alive` has ended unasked, or there was progress, but the time is up.
    """
    began = changed = time.monotonic()
    pause, limit_s = min(0.005, pause_s), max(_LIMIT_S, still_s) * patience()
    gap_s, looked, is_overdue = still_s / 12 * patience(), began, False

    def ended() -> Exception | None:
        failure: Exception | None = None
        has_ended = False
        try:
            has_ended = _has_all() and not all(lives() for lives in alive)
        except Exception as error:  # noqa: BLE001 (the wait raises it)
            failure = error
        if not _has_all():  # whatever has ended may have ended for this
            return Inconclusive(f"a server ended before: {what}")
        return Inconclusive(f"something ended before: {missed()}") if has_ended else failure

    def missed() -> str:
        return "; ".join(filter(None, [what, str(told(details)), str(told(lambda: compared(condition)))]))

    with _longer(limit_s), _judged(ended):
        seen = progress()
        while not (result := condition()):
            if (error := ended()) is not None:
                if result := condition():  # what it waits for came before the end
                    return result
                raise error
            found, now = progress(), time.monotonic()
            if found != seen:
                seen, changed, is_overdue = found, now, False
            if now - changed > still_s * patience():
                if is_overdue or now - looked < gap_s:
                    late = f"nothing changed for {now - changed:.0f} s before: {missed()}"
                    raise ended() or AssertionError(late)  # what is missing was asked for just now
                is_overdue = True  # the machine may have stood still, not what is waited for
            elif now - began > limit_s:
                late = f"not within {now - began:.0f} s, though there was progress"
                raise Inconclusive(f"{late}: {missed()}")
            looked = now
            time.sleep(gap_s if is_overdue else pause)
            pause = min(pause * 1.2, pause_s)
        return result


@contextlib.contextmanager
def _longer(limit_s: float) -> Iterator[None]:
    """What is in here has a limit of its own, and takes nothing of pytest's limit for the test.

    pytest-timeout calls what takes longer wrong, also two waits that go on well. It has set the timer of the process.
    """
    left_s, _ = signal.getitimer(signal.ITIMER_REAL)
    if not left_s or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, left_s + limit_s)
    try:
        yield
    finally:
        if signal.getitimer(signal.ITIMER_REAL)[0]:  # else, the test has failed by it
            signal.setitimer(signal.ITIMER_REAL, left_s)


@contextlib.contextmanager
def _judged(ended: Callable[[], Exception | None]) -> Iterator[None]:
    """Whatever was asked and has failed: if something has ended, that is raised, since the error comes of it.

    An assertion is wrong all the same: what it has found was there before.
    """
    try:
        yield
    except (AssertionError, Inconclusive):
        raise
    except Exception as error:
        reason = ended()
        if reason is None or reason is error:
            raise
        raise reason from error


def _has_all() -> bool:
    return all(is_up() for is_up in _needed)


def told(details: Callable[[], object]) -> object:
    """Returns details. That they cannot be told does not change what an error says."""
    try:
        return details()
    except Exception as error:  # noqa: BLE001 (it is a part of the text)
        return f"no details: {error!r}"
