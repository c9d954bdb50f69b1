"""The vendor's library, in a process of its own: if it crashes, a test fails and no more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqio.errors import LocalError
from rmqio.librocketmq.library import load
from tests.helpers.peers.librocketmq_side import Side


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    try:
        load()
    except LocalError as error:
        pytest.skip(str(error))
    with Side(tmp_path_factory.mktemp("home")) as side:
        yield side
