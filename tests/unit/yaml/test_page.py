"""Each block of YAML on the page is what Beam YAML and the transforms take."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import yaml

import rmqio.yaml

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = (ROOT / "docs/sql/yaml.md").read_text()
BLOCKS: Final[list[Any]] = [yaml.safe_load(each) for each in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


def test_transforms_of_the_page_are_made() -> None:
    made = [getattr(rmqio.yaml, each["type"])(**each["config"]) for block in BLOCKS[1:] for each in block]
    assert [type(each).__name__ for each in made] == ["ReadFromRocketMQ", "RocketMQSql", "WriteToRocketMQ"]


def test_the_providers_of_the_page_are_those_of_the_package() -> None:
    listed = yaml.safe_load(Path(rmqio.yaml.PROVIDERS).read_text())
    assert BLOCKS[0] == {"providers": listed}
    for name, path in listed[0]["transforms"].items():
        assert path == f"rmqio.yaml.{name}"


@pytest.mark.parametrize("which", ["the example", "the page", "the package"])
def test_beam_takes_the_providers(which: str) -> None:
    """Beam checks a pipeline file by a schema before it makes anything of it."""
    pytest.importorskip("jsonschema", reason="Beam YAML needs the extra 'yaml'")
    pytest.importorskip("docstring_parser", reason="Beam YAML needs the extra 'yaml'")
    from apache_beam.yaml.yaml_transform import expand_jinja, validate_against_schema

    if which == "the example":
        spec = yaml.safe_load(expand_jinja((ROOT / "examples/totals.yaml").read_text(), {"name_server": "n:1"}, []))
    elif which == "the page":
        spec = {"pipeline": {"transforms": [each for block in BLOCKS[1:] for each in block]}, **BLOCKS[0]}
    else:
        listed = yaml.safe_load(Path(rmqio.yaml.PROVIDERS).read_text())
        spec = {"pipeline": {"transforms": [{"type": "Create"}]}, "providers": listed}
    assert spec["providers"]
    validate_against_schema(spec, "generic")


@pytest.mark.parametrize("name", ["ReadFromRocketMQ", "RocketMQSql", "WriteToRocketMQ"])
def test_the_reference_to_which_the_page_links_names_all_options(name: str) -> None:
    import inspect

    made = getattr(rmqio.yaml, name)
    assert "](../api/yaml.md)" in PAGE
    assert f"::: rmqio.yaml.{name}\n" in (ROOT / "docs/api/yaml.md").read_text()
    page = inspect.getdoc(made) or ""  # Python 3.13 takes the indentation off by itself
    options = [each for each in inspect.signature(made.__init__).parameters if each not in ("self", "client_factory")]
    assert [each for each in options if not re.search(rf"(?m)^  (?:\w+, )*{each}(?:, \w+)*:", page)] == []
