"""Kernels are compiled once and kept on disk; where no folder can be written, they still work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = (
    "import numpy as np, adaquantfl as aq\n"
    "x = np.linspace(-1, 1, 1000, dtype=np.float32)\n"  # less than a block: few kernels to compile
    "assert aq.decode(aq.compress(x, s=3, key=1, codec='fixed')) == aq.quantize(x, s=3, key=1)\n"
    "import adaquantfl.quantizers.kernels as k; print(sum(k.square_sums.stats.cache_hits.values()))"
)


def run(**environment: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", CODE], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    assert run(NUMBA_CACHE_DIR=str(tmp_path)) == 0
    assert run(NUMBA_CACHE_DIR=str(tmp_path)) > 0


@pytest.mark.slow
def test_without_a_place_for_the_cache_everything_still_works(tmp_path: Path) -> None:
    # A copy of the package as a zip or a read-only system would have it: Numba finds nowhere to write.
    blocked = (
        "import numba.core.caching as c\n"
        "c.CacheImpl._locator_classes = []\n"
        "for name in ('CompileResultCacheImpl', 'CodeLibraryCacheImpl'):\n"
        "    setattr(getattr(c, name), '_locator_classes', [])\n"
    )
    done = subprocess.run([sys.executable, "-c", blocked + CODE], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 0


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    assert run(NUMBA_CACHE_DIR=str(tmp_path)) == 0
    files = sorted(tmp_path.rglob("*"))
    refuse = (
        "import tempfile\n"
        "def refuse(*_, **__): raise PermissionError('a read-only file system')\n"
        "tempfile.TemporaryFile = refuse\n"  # how Numba looks whether it can write
    )
    done = subprocess.run(
        [sys.executable, "-c", refuse + CODE + "\naq.compress(x, s=9, key=1, codec='sparse')"],  # not in the cache
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(done.stdout) > 0
    assert sorted(tmp_path.rglob("*")) == files


@pytest.mark.slow
def test_processes_that_compile_at_the_same_time_share_a_cache(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    both = [subprocess.Popen([sys.executable, "-c", CODE], env=environment, stdout=subprocess.PIPE) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert run(NUMBA_CACHE_DIR=str(tmp_path)) > 0
