"""Each block of YAML in docs is taken by what reads it; tests/unit/yaml/test_page.py has those of docs/sql/yaml.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("sigma", reason="Sigma rules need the extra 'sigma'")

from rmqio.rules import RuleSet
from tests.helpers.doc_blocks import PAGES, ROOT

_BLOCK: Final = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS: Final = {
    str(page.relative_to(ROOT)): found for page in PAGES if (found := _BLOCK.findall(page.read_text())) != []
}
RULE: Final = """
title: Failed log-in
name: failed_login
logsource: {category: process_creation, product: windows}
detection:
  selection: {CommandLine|contains: fail}
  condition: selection
"""


def test_each_page_with_yaml_has_a_test() -> None:
    counts = {page: len(blocks) for page, blocks in BLOCKS.items()}
    assert counts == {"docs/rules/correlation.md": 1, "docs/rules/sigma.md": 3, "docs/sql/yaml.md": 4}


_FIELDS: Final = {
    "mapping": "process.command_line",
    "two entries of a source": "ProcessCommandLine",
    "pipeline of pySigma": "process.command_line",
}


@pytest.mark.parametrize(
    ("block", "field"), [*zip(BLOCKS["docs/rules/sigma.md"], _FIELDS.values(), strict=True)], ids=_FIELDS
)
def test_a_mapping_maps_the_fields_of_a_rule(block: str, field: str, tmp_path: Path) -> None:
    (tmp_path / "mapping.yml").write_text(block)
    (tmp_path / "rule.yml").write_text(RULE)
    rules = RuleSet.from_files(tmp_path / "rule.yml", format="sigma", mapping=tmp_path / "mapping.yml").load()
    assert f"field='{field}'" in str(rules)


def test_a_correlation_is_one_of_the_set(tmp_path: Path) -> None:
    (block,) = BLOCKS["docs/rules/correlation.md"]
    (tmp_path / "rules.yml").write_text(f"{RULE}---\n{block}")
    (found,) = RuleSet.from_files(tmp_path / "rules.yml", format="sigma").correlations()
    assert (found.rules, found.group_by, found.count) == (("failed_login",), ("user",), 10)
