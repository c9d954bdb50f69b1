"""The blocks of Python in README and docs, and what they need to run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SCHEMA: Final = """{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}]}"""
"""The file order.avsc, which several blocks name."""
_BLOCK: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAME_SERVER: Final = re.compile(r"\b(127\.0\.0\.1|localhost):9876\b")


class Block(NamedTuple):
    """A block of Python on a page."""

    page: str
    line: int
    code: str

    @property
    def runs_on(self) -> str:
        """The needs of the block: Spark, a server, transactions, or nothing else than a `FakeBroker`."""
        if self.page == "docs/pyspark.md" or "spark.read" in self.code:
            return "spark"
        if "LocalRocketMQ" in self.code:
            return "broker"
        if "Kafka(" in self.code:
            return "kafka"
        if "WriteToElasticsearch(" in self.code:
            return "search"
        return "transactions" if "TransactionProducer" in self.code else "here"


def _blocks() -> list[Block]:
    return [
        Block(str(page.relative_to(ROOT)), text.count("\n", 0, found.start(1)) + 1, found[1])
        for page in PAGES
        for text in [page.read_text()]
        for found in _BLOCK.finditer(text)
    ]


BLOCKS: Final = _blocks()
"""All blocks, in the order of the pages."""


def blocks_that_need(what: str) -> list[Block]:
    return [block for block in BLOCKS if block.runs_on == what]


def program_with(page: str, text: str, name_server: str) -> str:
    """Returns a block of a page of docs/migrate as a program: with the imports and definitions of earlier blocks."""
    blocks = [block for block in BLOCKS if block.page == f"docs/migrate/{page}.md" and block.runs_on == "here"]
    (place,) = [place for place, block in enumerate(blocks) if text in block.code]
    before = [block.code.partition("\nwith beam.Pipeline(")[0] for block in blocks[:place]]
    return NAME_SERVER.sub(name_server, "\n".join([*before, blocks[place].code]))
