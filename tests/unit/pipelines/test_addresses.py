"""The sample file of the demo."""

from __future__ import annotations

import json

from pipelines.province import PROVINCES, province_of
from tests.helpers.addresses import SAMPLE_SIZE, addresses, sample_lines


def test_sample_file_is_what_the_generator_makes() -> None:
    assert [json.loads(line) for line in sample_lines()] == list(addresses())


def test_sample_has_unique_ids_and_names_every_province() -> None:
    sample = list(addresses())
    assert len({address["id"] for address in sample}) == len(sample) == SAMPLE_SIZE
    assert {province_of(address["address"]) for address in sample} == {*PROVINCES}


def test_a_shorter_sample_is_the_beginning_of_a_longer_one() -> None:
    assert list(addresses(20)) == list(addresses(30))[:20]
