"""Tests of stored messages run in Python and in C."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.wire.implementations import BOTH, using


@pytest.fixture(params=BOTH, autouse=True, scope="module")
def implementation(request: pytest.FixtureRequest) -> Iterator[None]:
    with using(request.param):
        yield
