"""Whether a failure of a test says that the product is wrong, or nothing; and which tests may be skipped."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Final

import pytest

from tests.helpers.waiting import Inconclusive

SKIPS: Final = (
    # Programs that no index of packages has. Other tests show what these show: bash, and the page's own functions.
    "zsh is not installed",
    "fish is not installed",
    "tmux is not installed",
    "neither Chromium nor Chrome is installed",
    "no JDK",
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
"""How the reasons begin for which the gate skips a test. Every other skip is wrong: what the test needs should be
there, as what the gate installs or fetches is, or the test should not be in the gate."""


def inconclusive(error: BaseException, *, in_setup: bool) -> bool:
    """Whether an error is one of the machine: a port was taken, a server did not come up before the test began, or a
    test says so itself. Everything else is wrong."""
    return any(
        isinstance(each, Inconclusive)
        or (isinstance(each, OSError) and each.errno == errno.EADDRINUSE)
        or (in_setup and any(base.__name__ == "LocalBrokerError" for base in type(each).__mro__))
        for each in _causes(error)
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error and its causes. A test that has judged an error itself, by an assertion, knows better."""
    while error is not None and not isinstance(error, (AssertionError, pytest.fail.Exception)):
        yield error
        error = error.__cause__
