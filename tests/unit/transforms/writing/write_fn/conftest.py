"""A `WriteFn` that is measured in Python and in C."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqio.transforms.writing import write_fn
from rmqio.wire import accelerator
from tests.helpers.transforms.write_bundles import Bundles
from tests.helpers.wire.implementations import BOTH


@pytest.fixture(params=BOTH, autouse=True)
def _implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_fn, "_usual_size", accelerator.usual_size if request.param == "c" else None)


@pytest.fixture
def bundles() -> Iterator[Bundles]:
    made = Bundles()
    yield made
    made.fn.teardown()
    assert made.cluster.open_clients == 0
