"""Transforms for Beam YAML: `ReadFromRocketMQ`, `WriteToRocketMQ` and `RocketMQSql`. `PROVIDERS` is the listing."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rmqio.yaml.read import ReadFromRocketMQ
from rmqio.yaml.write import RocketMQSql, WriteToRocketMQ

PROVIDERS: Final = str(Path(__file__).with_name("providers.yaml"))
"""The path of the listing, for `providers: - include:`."""

__all__ = ["PROVIDERS", "ReadFromRocketMQ", "RocketMQSql", "WriteToRocketMQ"]
