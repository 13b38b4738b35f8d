"""The bytes of an update: whatever arrives, the answer is the client's arrays or FrameError."""

from __future__ import annotations

import numpy as np
from flwr.app import Array
from hypothesis import given
from hypothesis import strategies as st

from adaquantfl.errors import FrameError
from adaquantfl.flower.plan import Plan
from adaquantfl.flower.update import NAME, STYPE, Model, pack, unpack
from support.fake_flower import record

PLAN = Plan(0, 3)
BEFORE = {"a": np.zeros((4, 5), "f4"), "n": np.array(3), "b": np.ones(30, "f8")}
AFTER = {"a": np.full((4, 5), 0.1, "f4"), "n": np.array(4), "b": np.linspace(0, 2, 30)}
MODEL = Model(record(BEFORE))
PACKED = pack(record(AFTER), MODEL, PLAN, client=2)
assert PACKED is not None
DATA = PACKED[NAME].data


def opened(data: bytes) -> dict[str, Array]:
    return unpack({"n": Array(np.array(4)), NAME: Array("uint8", (len(data),), STYPE, data)}, MODEL, PLAN).arrays


def refused_or_whole(data: bytes) -> None:
    try:
        arrays = opened(data)
    except FrameError:
        return
    for name, array in arrays.items():
        assert array.numpy().shape == AFTER[name].shape
        assert np.isfinite(array.numpy()).all()


def test_untouched_bytes_give_the_clients_arrays() -> None:
    assert {name: array.dtype for name, array in opened(DATA).items()} == {"a": "float32", "n": "int64", "b": "float64"}


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    refused_or_whole(data)


@given(st.integers(0, len(DATA) - 1), st.integers(0, 255))
def test_a_changed_byte_is_refused_or_harmless(position: int, value: int) -> None:
    refused_or_whole(DATA[:position] + bytes([value]) + DATA[position + 1 :])


@given(st.integers(0, len(DATA) - 1), st.integers(0, len(DATA)))
def test_a_missing_piece_is_refused(first: int, length: int) -> None:
    refused_or_whole(DATA[:first] + DATA[first + length :])
