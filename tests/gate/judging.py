"""Whether a failure of a test says that the product is wrong, or nothing; and which tests may be skipped."""

from __future__ import annotations

import errno
import traceback
from collections.abc import Iterator
from typing import Final

from tests.helpers.waiting import Inconclusive

_ANYWHERE: Final = (
    # Programs that no index of packages has. Other tests show what these show: bash, and the page's own functions.
    "zsh is not installed",
    "fish is not installed",
    "tmux is not installed",
    "neither Chromium nor Chrome is installed",
    # The machine: a container without IPv6, a processor without a wheel.
    "this machine has no ::1",
    "hyperscan has no wheel here",
    # Beam's own suites leave out what is wrong in Beam.
    "BEAM-",
    "https://github.com/apache/beam/issues/",
    # Rows of a table that say nothing of one of its columns.
    "None means no limit",
    "a reader takes a broker's word for it that the topic is gone",
)
SKIPS: Final = (*_ANYWHERE, "no JDK")
"""How the reasons begin for which the gate skips a test. Every other skip is wrong: what the test needs should be
there, as what the gate installs or fetches is, or the test should not be in the gate."""
PARTS_SKIPS: Final = (
    *_ANYWHERE,
    # Rows of a table that say nothing of one of its columns.
    "MariaDB has no intervals",
    "MariaDB tells values that do not fit from types that do not",
    "PostgreSQL takes rows of any size that fit into memory",
    "PostgreSQL has a state for each error",
    "PostgreSQL has no such mode",
    "the in-process runner has one worker",
    # What Beam leaves out itself.
    "Batch mode ",
    "Known to be broken on ",
    "Non-fnapi timestamp combiner",
    "Portable runners don't support drain yet",
    "TestStream not yet supported",
    "could not import 'dill'",
    # Beam's tests of something that a runner on a cluster has not: see the lists beside these tests.
    "OUTPUT_AT_EARLIEST_TRANSFORMED",
    "PairWithTiming is a primitive",
    "a private way of Beam's interactive runner",
    "counts on one worker process",
    "expects an element to wait for the end of the side window",
    "needs no runner",
    "needs the expansion service of a Java job server",
    "refused: events from a service",
    "wants an element to wait for the side window's end",
    "wants the time of a pane to leave out elements",
)
"""The same of `make test-all`."""


_SAID: Final = (
    # A port that another process has: servers in Java, and in C.
    "BindException",
    "Address already in use",
    # Spark gives a process of Python 10 s to begin. It says the same of one that ends at once, each time it runs.
    "Python worker failed to connect back",
)
"""What others say of the machine."""


def inconclusive(error: BaseException, *, in_setup: bool) -> bool:
    """Whether an error is one of the machine: a port was taken, a server did not come up before the test began, or a
    test says so itself, also if its clean-up fails then. Everything else is wrong, and so is everything that has an
    assertion before it."""
    return not is_judged(error) and (
        _is_of_machine(error, in_setup) or any(isinstance(each, Inconclusive) for each in _before(error))
    )


def is_judged(error: BaseException) -> bool:
    """Whether an assertion has failed: this one, or one before it, whatever was raised instead of it since."""
    import pytest  # the gate itself does not need it

    left, seen = [error], set[int]()
    while left:
        each = left.pop()
        if isinstance(each, (AssertionError, pytest.fail.Exception)):
            return True
        if id(each) not in seen:
            seen.add(id(each))
            inner = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
            left += [before for before in (each.__cause__, each.__context__, *inner) if before is not None]
    return False


def _before(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error and what was being handled when it was raised."""
    seen, each = set[int](), error
    while each is not None and id(each) not in seen:
        yield each
        seen.add(id(each))
        each = each.__cause__ or each.__context__


def _is_of_machine(error: BaseException, in_setup: bool) -> bool:
    """An error is what one of its causes is. A group is what all of its errors are."""
    return any(
        all(_is_of_machine(inner, in_setup) for inner in each.exceptions)
        if isinstance(each, BaseExceptionGroup)
        else isinstance(each, Inconclusive)
        or (isinstance(each, OSError) and each.errno == errno.EADDRINUSE)
        or any(text in _text(each) for text in _SAID)
        or (in_setup and any(base.__name__ == "LocalBrokerError" for base in type(each).__mro__))
        for each in _causes(error)
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error and its causes, each once: they may go round in circles."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__


def _text(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error))  # str() fails for an error of a JVM that has ended
