"""The pages of formats have every option of a format."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.catalog.options import FORMAT_OPTIONS

DOCS = Path(__file__).parents[4] / "docs/sql"
TEXT = "".join((DOCS / f"{name}.md").read_text() for name in ("formats", "log-formats", "dimension-tables"))
WITHOUT_EFFECT = {"json.decode.json-parser.enabled", "json.encode.decimal-as-plain-number"}
"""Options of Flink that are accepted."""
SAME = ("avro-confluent.schema", "avro-openschema.schema", "protobuf-confluent.")
"""The pages say of these that they are as those of the plain format."""


@pytest.mark.parametrize("name", sorted(FORMAT_OPTIONS))
def test_an_option_is_on_a_page(name: str) -> None:
    assert f"'{name}'" in TEXT or name in WITHOUT_EFFECT or name.startswith(SAME)
