"""The watermarks that a bucket keeps in its state from one micro-batch to the next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from rmqio.runners.spark.streaming.json_fields import Fields

ENTRY: Final = b"root"
"""The name of the entry in the state."""


@dataclass(frozen=True, slots=True)
class BucketWatermarks:
    """The watermarks of a bucket. Times are in microseconds."""

    stages: Mapping[str, int] = field(default_factory=dict)
    """The watermark of each stage, by stage id."""
    parts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The watermark of each part, by source number and part. Kept in level 1 only, which receives them."""
    heard: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """When something last came from a part, by source number and part. Kept in level 1 only."""

    @classmethod
    def decode(cls, encoded: bytes | None) -> Self:
        """Decodes the entry of the state; None: there is none yet."""
        if not encoded:
            return cls()
        fields = Fields.decode("BucketWatermarks", encoded)
        return cls(
            stages=fields.nested("watermarks", is_optional=True).values(int),
            parts=fields.integers_of_objects("parts", is_optional=True),
            heard=fields.integers_of_objects("heard", is_optional=True),
        )

    def encode(self) -> bytes:
        """Encodes what is not empty."""
        found = {"parts": self.parts, "heard": self.heard, "watermarks": self.stages}
        return json.dumps({name: each for name, each in found.items() if each}).encode()
