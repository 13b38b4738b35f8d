"""Quantizers of other packages: what CONTRIBUTING.md shows works, and no two can have one name or one tag."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.codecs.inspection import describe
from adaquantfl.quantizers import LINF, Quantizer, Traits, find, names, register, registry
from adaquantfl.runs.config import Config
from support import recipes

SEGMENTS = [700, 1, 299]


@pytest.fixture(autouse=True)
def _own_table(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(registry, "_TABLE", registry._table())
    yield
    recipes.forget()


@pytest.fixture
def x(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal(1000).astype(np.float32)


@pytest.fixture
def sign() -> Quantizer:
    return recipes.made("quantizer")["QUANTIZER"]


class Shifted(Quantizer):
    """Rounds to the nearest, and adds a tenth of a step: not linear."""

    name = "shifted"
    tags = {LINF: 200}  # noqa: RUF012 - as another package writes it
    traits = Traits(keyed=True)

    def __init__(self, shift: float = 0.1) -> None:
        self.shift = shift

    def quantize(self, x: Any, s: int, key: int, segments: Any, stretch: Any, norm: str) -> aq.Levels:
        scale = np.float32(np.abs(x).max())
        return aq.Levels(np.rint(x / scale * s).astype(np.int8), scale, s, None, self.name, norm, key)

    def dequantize(self, levels: aq.Levels) -> np.ndarray:
        return ((levels.values + self.shift) * (levels.scales[0] / levels.s)).astype(np.float32)


def test_the_recipe_goes_through_every_step(sign: Quantizer, x: np.ndarray) -> None:
    levels = aq.quantize(x, s=1, key=7, segments=SEGMENTS, quantizer=sign)
    parts = np.split(x, np.cumsum(SEGMENTS)[:-1])
    means = np.repeat([np.abs(part).mean() for part in parts], SEGMENTS)
    np.testing.assert_allclose(levels.dequantize(), np.sign(x) * means, rtol=1e-6)
    np.testing.assert_allclose(levels.remainder(x), x - np.sign(x) * means, atol=1e-6)
    for codec in ("fixed", "sparse", "dense", "auto"):
        frame = aq.encode(levels, codec)
        assert aq.decode(frame) == levels
        assert aq.compress(x, 1, 7, codec, SEGMENTS, quantizer=sign) == frame
    total = aq.Accumulator(len(x))
    total.add(frame, 0.25)
    total.add(frame, 0.5)
    np.testing.assert_allclose(total.result(), 0.75 * levels.dequantize(), rtol=1e-6)
    assert "sign (tag 128)" in describe(frame)
    with pytest.raises(aq.QuantizeError, match="NaN"):
        aq.quantize(np.array([np.nan, 1.0]), 1, 7, quantizer=sign)
    with pytest.raises(aq.QuantizeError, match="1 to 1"):
        aq.quantize(x, 2, 7, quantizer=sign)


def test_a_quantizer_that_is_not_linear_is_added_up_from_its_floats(x: np.ndarray) -> None:
    frame = aq.compress(x, s=20, key=3, quantizer=Shifted())
    total = aq.Accumulator(len(x))
    total.add(frame, 0.5)
    expected = aq.quantize(x, s=20, key=3, quantizer=Shifted()).dequantize()  # another, equal instance
    np.testing.assert_allclose(total.result(), 0.5 * expected, rtol=1e-6)
    assert aq.decode(frame).key == 3
    with pytest.raises(aq.QuantizeError, match="'linf'"):
        aq.quantize(x, s=20, key=3, quantizer=Shifted(), norm="l2")


def test_levels_beyond_s_are_refused_before_a_kernel_sees_them(x: np.ndarray) -> None:
    class TooLarge(Shifted):
        def quantize(self, x: Any, s: int, key: int, segments: Any, stretch: Any, norm: str) -> aq.Levels:
            return aq.Levels(np.full(len(x), 100, dtype=np.int32), np.float32(1), s, None, self.name, norm, key)

    for codec in ("fixed", "sparse", "dense", "auto"):
        with pytest.raises(aq.FrameError, match="The levels reach from 100 to 100"):
            aq.compress(x, s=1, key=3, codec=codec, quantizer=TooLarge())


WRONG: dict[str, tuple[Any, str]] = {
    "a list": ([1, 2], "returned list, expected aq.Levels"),
    "nothing": (None, "returned NoneType, expected aq.Levels"),
    "floats": (aq.Levels(np.ones(1000), np.float32(1), 1), "levels of float64 of shape"),
    "too few": (aq.Levels(np.ones(3, np.int8), np.float32(1), 1), r"int8 of shape \(3,\), expected .*\(1,000,\)"),
    "a scale as text": (aq.Levels(np.ones(1000, np.int8), "1", 1, None, "shifted"), "a scale of str"),
    "s as text": (
        aq.Levels(np.ones(1000, np.int8), np.float32(1), "1", None, "shifted"),
        "s = '1' of 'shifted', expected 1 and",
    ),
    "another's name": (aq.Levels(np.ones(1000, np.int8), np.float32(1), 1), "s = 1 of 'uniform'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_quantizer_that_returns_something_else_is_told_what_and_where(case: str, x: np.ndarray) -> None:
    made, says = WRONG[case]

    class Wrong(Shifted):
        def quantize(self, x: Any, s: int, key: int, segments: Any, stretch: Any, norm: str) -> Any:
            return made

    for function in (aq.quantize, aq.compress):
        with pytest.raises(aq.ConfigError, match=rf"'shifted': quantize \(test_outside.py, line \d+\) .*{says}"):
            function(x, 1, 3, quantizer=Wrong())


def test_a_server_tries_a_quantizer_out_before_clients_meet_its_faults(x: np.ndarray) -> None:
    class Raises(Shifted):
        def quantize(self, x: Any, s: int, key: int, segments: Any, stretch: Any, norm: str) -> Any:
            return x.nothing

    class OneScale(Shifted):
        name, tags = "one-scale", {LINF: 201}

        def quantize(self, x: Any, s: int, key: int, segments: Any, stretch: Any, norm: str) -> Any:
            return aq.Levels(np.zeros(len(x), np.int8), np.float32(1), s, segments, self.name, norm, key)

    for quantizer, says in (
        (Raises(), r"'shifted': quantize raised AttributeError.*test_outside.py, line \d+"),
        (OneScale(), r"quantize \(test_outside.py, line \d+\) returned 1 scales, expected one for each of the 3"),
    ):
        with pytest.raises(aq.ConfigError, match=says):
            aq.Server(x, rule=aq.Fixed(bits=2), quantizer=quantizer)


def test_floats_that_are_none_or_are_not_defined_are_told_likewise(x: np.ndarray) -> None:
    class Wrong(Shifted):
        def dequantize(self, levels: aq.Levels) -> Any:
            return [0.0]

    class Silent(Shifted):
        name, tags = "silent", {LINF: 202}
        dequantize = Quantizer.dequantize

    wrong = aq.quantize(x, 20, 3, quantizer=Wrong())
    with pytest.raises(
        aq.ConfigError, match=r"dequantize \(test_outside.py, line \d+\) returned list, expected float32"
    ):
        wrong.dequantize()
    with pytest.raises(NotImplementedError, match=r"silent .* define dequantize"):
        aq.quantize(x, s=20, key=3, quantizer=Silent()).dequantize()


def test_a_registered_name_is_one_that_configurations_and_methods_take(
    sign: Quantizer, capsys: pytest.CaptureFixture[str]
) -> None:
    from adaquantfl.cli import main

    with pytest.raises(aq.ConfigError, match="no quantizer named 'sign'"):
        Config(quantizer="sign", rule="1bit")
    assert register(sign) is register(sign) is find("sign") is find(sign)
    assert names()[-1] == "sign"
    assert Config(quantizer="sign", rule="1bit").quantizer["name"] == "sign"
    with pytest.raises(aq.ConfigError, match="1bit"):
        Config(quantizer="sign")
    assert main(["methods"]) == 0
    assert sign.traits.about in capsys.readouterr().out


@pytest.mark.parametrize("other", [Shifted(0.2), type("Tagless", (Shifted,), {"tags": {}})(), 7])
def test_what_frames_cannot_tell_apart_or_is_none_is_refused(other: Any, x: np.ndarray) -> None:
    register(Shifted())
    with pytest.raises(aq.QuantizeError, match=r"'shifted' is taken|no tags|not a quantizer"):
        aq.compress(x, s=3, key=1, quantizer=other)
    assert find("shifted").shift == 0.1
