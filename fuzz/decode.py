"""Coverage-guided fuzzing of everything that reads a frame, with atheris.

    python -m venv .fuzz && .fuzz/bin/pip install atheris -e .
    NUMBA_BOUNDSCHECK=1 .fuzz/bin/python fuzz/decode.py -max_total_time=600 -max_len=4096 fuzz/corpus

A mutation gets a right checksum again (nearly always), so that what lies behind it is what is tested. Findings are: an
exception other than FrameError, an access out of bounds (Numba checks them with NUMBA_BOUNDSCHECK=1), levels that do
not survive being written and read again, or a sum that differs from the decoded levels.
"""

from __future__ import annotations

import random
import struct
import sys
import zlib
from pathlib import Path

import atheris

# The compiled kernels come first: Numba cannot read code that was instrumented.
import adaquantfl.codecs.kernels.dense
import adaquantfl.codecs.kernels.fixed
import adaquantfl.codecs.kernels.nonzeros
import adaquantfl.codecs.kernels.sparse
import adaquantfl.quantizers.centroid
import adaquantfl.quantizers.fitted
import adaquantfl.quantizers.lattice
import adaquantfl.quantizers.rivals
import adaquantfl.quantizers.rotation

with atheris.instrument_imports(include=["adaquantfl"]):
    import numpy as np

    import adaquantfl as aq
    from adaquantfl.codecs.frame import read_frame
    from adaquantfl.codecs.registry import by_tag
    from adaquantfl.quantizers.registry import find, names

LARGEST = 200_000  # the dimension that the receiver expects at most


def test_one_input(data: bytes) -> None:
    """One message, as a server meets it."""
    dimension = struct.unpack_from("<Q", data, 16)[0] if len(data) >= 24 else 1
    expected = min(max(dimension, 1), LARGEST)
    total = aq.Accumulator(expected)
    try:
        frame = read_frame(data, expected)
        if frame.header.quantizer == 255:
            values = aq.decode_float32(data, expected)
            total.add(data, 1.0)
            assert np.array_equal(total.result(), values)
            return
        levels = aq.decode(data, expected)
    except aq.FrameError:
        try:
            total.add(data, 1.0)
        except aq.FrameError:
            return
        raise AssertionError("the accumulator took a frame that decode refuses") from None
    assert aq.decode(by_tag(frame).encode(levels)) == levels
    if np.abs(levels.scales).max() < 1e38:
        total.add(data, 1.0)
        exact = levels.dequantize().astype(np.float64)
        assert np.allclose(total.result(), exact, rtol=1e-5, atol=1e-37)


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """libFuzzer's mutation, then the checksum that the bytes ask for."""
    chance = random.Random(seed)
    changed = bytearray(atheris.Mutate(data, max_size))
    if len(changed) >= 40 and chance.random() < 0.98:
        if chance.random() < 0.5:  # the length that the bytes ask for, so that the body is reached
            header = 32 + 8 * chance.choice((0, 1, 1, 1, 2, 3))  # segments and scales vary
            struct.pack_into("<Q", changed, 24, max(0, len(changed) - header - 4))
        changed[-4:] = zlib.crc32(changed[:-4]).to_bytes(4, "little")
    return bytes(changed[:max_size])


def seeds(folder: Path) -> None:
    """Valid frames of every kind to start from."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for d in (1, 7, 100, 1030, 3000):
        x = (rng.standard_normal(d) * np.exp(rng.standard_normal(d))).astype(np.float32)
        for s in (1, 2, 5, 300, 65535):
            for codec in ("fixed", "sparse", "dense"):
                for name, segments in (("whole", None), ("list", [1, d - 1] if d > 1 else [1])):
                    (folder / f"{codec}-{d}-{s}-{name}").write_bytes(aq.compress(x, s, 1, codec, segments))
        for name in names():
            frame = aq.compress(x, min(find(name).traits.most, 3), 1, quantizer=name)
            (folder / f"{name}-{d}").write_bytes(frame)
        (folder / f"float32-{d}").write_bytes(aq.encode_float32(x))
    wide = np.zeros(150_000, dtype=np.float32)
    wide[[5, 70_000, 149_999]] = [1.0, -2.0, 2.0]
    (folder / "sparse-wide").write_bytes(aq.compress(wide, 3, 1, "sparse"))
    (folder / "dense-wide").write_bytes(aq.compress(wide, 3, 1, "dense"))


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        if not argument.startswith("-") and not Path(argument).exists():
            seeds(Path(argument))
    atheris.Setup(sys.argv, test_one_input, custom_mutator=mutate)
    atheris.Fuzz()
