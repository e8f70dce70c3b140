"""Every bit of a small node file flipped: damage is named and never served, and all else is."""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.node_damage import flip_bits, node_specimen, start_with_flipped

PARTS: Final = 13
"""An odd number, so that each part has bits of every place in a byte."""
STARTS: Final = 60


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=() if part == 0 else pytest.mark.long) for part in range(PARTS)]
)
def test_every_flipped_bit_is_named_and_not_served(part: int) -> None:
    specimen = node_specimen()
    assert flip_bits(specimen, specimen.bits[part::PARTS]) > 100


def test_a_start_serves_what_is_not_damaged() -> None:
    specimen = node_specimen()
    for bit in specimen.bits[:: len(specimen.bits) // STARTS + 1]:
        start_with_flipped(specimen, bit)
