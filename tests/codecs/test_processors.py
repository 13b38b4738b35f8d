"""Processors with and without vectors write and read the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import llvmlite.binding
import numpy as np
import pytest

import adaquantfl as aq
from support.frames import dense_body, framed

D = 70_013
WITHOUT = {
    "vectors": {"NUMBA_ENABLE_AVX": "0"},
    "AVX-512": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+bmi,+bmi2,+fma,+popcnt,+lzcnt"},
}
CHILD = (
    "import sys; sys.path[:0] = sys.argv[2:]\n"
    "from processors_of_tests import written\n"
    "assert written() == open(sys.argv[1], 'rb').read()\n"
)


def written() -> bytes:
    """Frames of every kind of body, and sums of them; each frame is read again."""
    x, total = np.random.default_rng(3).standard_normal(D).astype(np.float32), aq.Accumulator(D)
    frames = [aq.compress(x, s, 1, "fixed", [7, 30_000, 40_006]) for s in (1, 2, 100, 4095, 4096, 65535)]
    for s, size, pairs, lanes in ((1, 1, True, 64), (9, 4, True, 4), (127, 3, False, 16), (65_535, 3000, False, 64)):
        levels = aq.Levels(np.clip(np.rint(size * x), -s, s).astype(np.int32), np.float32(1.5), s)
        frames.append(framed(levels, 2, dense_body(levels, pairs, lanes)))
        assert np.array_equal(aq.decode(frames[-1]).values, levels.values)
    for frame in frames:
        total.add(frame, 0.3)
    return b"".join(frames) + total.result().tobytes()


@pytest.mark.parametrize("without", ["vectors", pytest.param("AVX-512", marks=pytest.mark.slow)])
def test_processors_with_and_without_vectors_write_and_read_the_same_bytes(without: str, tmp_path: Path) -> None:
    if without == "AVX-512" and "+avx2" not in llvmlite.binding.get_host_cpu_features().flatten().split(","):
        pytest.skip("this processor cannot run AVX2 code")
    (tmp_path / "processors_of_tests.py").write_text(Path(__file__).read_text())
    (tmp_path / "expected").write_bytes(written())
    environment = os.environ | WITHOUT[without] | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    paths = [str(tmp_path / "expected"), str(tmp_path), *sys.path]
    subprocess.run([sys.executable, "-c", CHILD, *paths], env=environment, check=True)
