"""The bytes of wire format version 1: today's encoder writes the golden frames and both decoders read them.

If one of these fails, the format has changed: that takes a new version, not new golden files (scripts/make_golden.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.quantizers.registry import find, names
from support import reference_decoder as reference
from support import reference_quantizers

FOLDER = Path(__file__).parent / "golden"
EXPECTED: dict[str, dict[str, Any]] = json.loads((FOLDER / "expected.json").read_text())
LEVELS = [name for name, entry in EXPECTED.items() if entry["codec"] != "float32"]
RIVALS = [name for name in LEVELS if "quantizer" in EXPECTED[name]]


def golden(name: str) -> bytes:
    return (FOLDER / f"{name}.bin").read_bytes()


def expected_levels(name: str) -> aq.Levels:
    entry = EXPECTED[name]
    levels, times = zip(*entry["runs"], strict=True)
    scales = np.array(entry["scales"], dtype=np.float32)
    whole = entry["segments"] is None
    segments = None if whole else np.array(entry["segments"], dtype=np.int64)
    rival = {name: entry[name] for name in ("quantizer", "norm", "key") if name in entry}
    if "x" in entry:  # there the key was the quantizer's
        rival = {}
    if entry.get("numbers") is not None:
        rival["number"] = entry["numbers"][0]
    return aq.Levels(np.repeat(levels, times), scales[0] if whole else scales, entry["s"], segments, **rival)


def test_every_golden_frame_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.bin")} == set(EXPECTED)


@pytest.mark.parametrize("name", LEVELS)
def test_the_encoder_writes_the_golden_bytes(name: str) -> None:
    entry = EXPECTED[name]
    assert aq.encode(expected_levels(name), entry["codec"]) == golden(name)
    if "x" in entry:  # whole numbers, which no random number changes
        x = np.array(entry["x"], dtype=np.float32)
        assert aq.compress(x, entry["s"], entry["key"], entry["codec"], entry["segments"]) == golden(name)


@pytest.mark.parametrize("name", LEVELS)
def test_both_decoders_read_the_golden_levels(name: str) -> None:
    expected, levels, other = expected_levels(name), aq.decode(golden(name)), reference.decode(golden(name))
    assert levels.values.tolist() == other.values == expected.values.tolist()
    assert levels.scales.tolist() == other.scales == expected.scales.tolist()
    assert levels.s == other.s == expected.s
    segments = None if levels.segments is None else levels.segments.tolist()
    assert segments == other.segments == EXPECTED[name]["segments"]


@pytest.mark.parametrize("name", RIVALS)
def test_both_decoders_make_the_golden_floats_of_other_quantizers(name: str) -> None:
    levels, other, floats = aq.decode(golden(name)), reference.decode(golden(name)), EXPECTED[name]["floats"]
    assert levels == expected_levels(name)
    np.testing.assert_allclose(levels.dequantize()[-16:], floats, rtol=2e-5, atol=1e-6 * np.abs(floats).max())
    made = reference_quantizers.floats(other)[-16:]
    np.testing.assert_allclose(made, floats, rtol=2e-5, atol=1e-6 * np.abs(floats).max())


def test_every_tag_has_a_golden_frame() -> None:
    assert {golden(name)[5] for name in EXPECTED} == {
        *(tag for name in names() for tag in find(name).tags.values()),
        255,
    }


def test_float32_values_have_their_golden_bytes() -> None:
    x = EXPECTED["float32"]["x"]
    assert aq.encode_float32(np.array(x, dtype=np.float32)) == golden("float32")
    assert aq.decode_float32(golden("float32")).tolist() == reference.decode_float32(golden("float32")) == x
