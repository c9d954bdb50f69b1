"""Processes that share an address for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.helpers.servers.prometheus import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    from tests.helpers.servers.prometheus import Machine  # which needs the extra 'prometheus'

    made = Machine(tmp_path)
    yield made
    for worker in made.workers:
        if worker.process.stdout is not None and not worker.process.stdout.closed:
            worker.kill()
