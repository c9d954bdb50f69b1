"""Whether a failure of a test says that the product is wrong, or nothing."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from tests.helpers.waiting import Inconclusive


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
    while error is not None:
        yield error
        error = error.__cause__
