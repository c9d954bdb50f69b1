"""Selects an implementation of the parts of `rmqio.wire` that exist in Python and in C."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rmqio.wire import accelerator, batch, command, stored
from rmqio.wire import templates as send_template

needs_c = pytest.mark.skipif(
    accelerator.IMPLEMENTATION != "c", reason="the C extension is not built, or RMQIO_PURE_PYTHON is set"
)
BOTH = ("python", pytest.param("c", marks=needs_c))


@contextmanager
def using(implementation: str) -> Iterator[None]:
    """Decodes and encodes with "python" or "c". Messages still come from the implementation that this process chose."""
    in_c = implementation == "c"
    with pytest.MonkeyPatch.context() as patch:
        decode = accelerator.decode_usual if in_c else stored._decode_usual_in_python
        patch.setattr(stored, "_decode_usual", decode)
        patch.setattr(batch, "_encode_usual", accelerator.encode_usual if in_c else None)
        patch.setattr(batch, "_is_for_topic", accelerator.is_for_topic if in_c else None)
        patch.setattr(command, "_read_usual", accelerator.read_usual_header if in_c else None)
        patch.setattr(send_template, "_usual_properties", accelerator.usual_properties if in_c else None)
        yield
