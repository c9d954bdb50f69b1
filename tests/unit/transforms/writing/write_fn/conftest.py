"""A `WriteFn` that is measured in Python and in C, and that gets its elements one by one and in lists."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqio.transforms.writing import write_fn
from rmqio.transforms.writing import write_fn as batch_write_fn
from rmqio.wire import accelerator
from tests.helpers.transforms.write_bundles import Bundles
from tests.helpers.wire.implementations import BOTH


@pytest.fixture(params=BOTH, autouse=True)
def _implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    in_c = request.param == "c"
    monkeypatch.setattr(write_fn, "_usual_size", accelerator.usual_size if in_c else None)
    usual_size = accelerator.usual_size if in_c else batch_write_fn._plain_size
    monkeypatch.setattr(write_fn, "_size_of", usual_size)


@pytest.fixture(params=["elements", "batches"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether elements are written in lists."""
    in_batches: bool = request.param == "batches"
    monkeypatch.setattr(Bundles, "in_batches", in_batches)
    return in_batches


@pytest.fixture
def bundles(request: pytest.FixtureRequest) -> Iterator[Bundles]:
    if "both_ways" in request.fixturenames:
        request.getfixturevalue("both_ways")
    made = Bundles()
    yield made
    made.fn.teardown()
    assert made.cluster.open_clients == 0
