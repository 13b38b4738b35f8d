"""Codecs of other packages: what CONTRIBUTING.md shows works, refuses what it must, and clashes with no other."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.codecs import registry
from adaquantfl.codecs.frame import TILE, framed, read_frame
from adaquantfl.codecs.inspection import describe
from adaquantfl.codecs.registry import Codec, find, names, register
from adaquantfl.quantizers import registry as quantizers
from adaquantfl.runs.config import Config
from support import recipes


@pytest.fixture(autouse=True)
def _own_table(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is forgotten after it."""
    for table in (registry, quantizers):
        monkeypatch.setattr(table, "_TABLE", table._table())
    yield
    recipes.forget()


@pytest.fixture
def deflate() -> Codec:
    return recipes.made("codec")["CODEC"]


@pytest.mark.parametrize("quantizer", ["uniform", "centroid"])
def test_the_recipe_carries_levels_and_adds_them_up(deflate: Codec, quantizer: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal(3 * TILE + 77).astype(np.float32)
    for segments in (None, [TILE - 5, 10, 2 * TILE - 5 + 77]):
        levels = aq.quantize(x, 300, 1, segments, quantizer=quantizer)
        frame = aq.encode(levels, deflate)
        assert aq.decode(frame) == levels
        assert aq.compress(x, 300, 1, deflate, segments, quantizer=quantizer) == frame
        sums = []
        for one in (frame, aq.encode(levels, "dense")):
            total = aq.Accumulator(len(x))
            total.add(one, 0.5)
            total.add(one, 0.25)
            sums.append(total.result())
        np.testing.assert_array_equal(*sums)


def test_it_is_known_by_its_name_and_shown(deflate: Codec) -> None:
    with pytest.raises(aq.ConfigError, match="no codec named 'deflate'"):
        Config(codec="deflate")
    assert register(deflate) is find("deflate")
    assert names() == ("auto", "fixed", "sparse", "dense", "deflate")
    assert Config(codec="deflate").codec == "deflate"
    text = describe(aq.compress(np.arange(-8, 8, dtype=np.float32), 3, 1, "deflate"))
    assert "deflate (tag 128)" in text
    assert "deflate" in text.split("with codec")[1]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"nonsense", "inflated"),
        (zlib.compress(bytes(10_000)), "does not hold 100 bytes"),
        (zlib.compress(bytes([4] * 100)), "the largest is 3"),
        (zlib.compress(bytes([256 - 4] * 100)), "the largest is 3"),
    ],
)
def test_bodies_that_are_not_its_own_are_refused(deflate: Codec, content: bytes, says: str) -> None:
    right = read_frame(aq.compress(np.ones(100, dtype=np.float32), 3, 1, deflate))
    bad, total = framed(right.header, content), aq.Accumulator(100)
    for read in (aq.decode, total.add):
        with pytest.raises(aq.FrameError, match=says):
            read(bad)
    assert not total.result().any()


def test_levels_of_another_length_are_not_taken_for_a_body(deflate: Codec) -> None:
    short = type("Short", (type(deflate),), {"levels": lambda self, frame: np.zeros(99, dtype=np.int8)})()
    frame = read_frame(aq.compress(np.ones(100, dtype=np.float32), 3, 1, deflate))
    with pytest.raises(aq.FrameError, match="dimension is 100"):
        short.read(frame)


def test_what_is_not_a_codec_is_refused() -> None:
    with pytest.raises(aq.FrameError, match="not a codec"):
        register(7)  # type: ignore[arg-type]
    tagless = type("Tagless", (Codec,), {"NAME": "tagless", "body": None, "levels": None})
    with pytest.raises(aq.FrameError, match="no TAG"):
        register(tagless())


def test_an_installed_package_brings_its_codec_and_its_quantizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deflate: Codec
) -> None:
    x = np.linspace(-1, 1, 500, dtype=np.float32)
    frames = [aq.compress(x, 1, 1, deflate), aq.compress(x, 1, 1, quantizer=recipes.made("quantizer")["QUANTIZER"])]
    for table in (registry, quantizers):
        monkeypatch.setattr(table, "_TABLE", table._table())
    for frame in frames:
        with pytest.raises(aq.FrameError, match=r"tag 128 is unknown. Install or register"):
            aq.decode(frame)
    monkeypatch.syspath_prepend(recipes.install(tmp_path))
    for table in (registry, quantizers):
        monkeypatch.setattr(table, "_TABLE", table._table())
    assert aq.decode(frames[0]) == aq.quantize(x, 1, 1)
    assert aq.decode(frames[1]) == aq.quantize(x, 1, 1, quantizer="sign")
