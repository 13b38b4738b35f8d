"""The core in C, by its own programs: core/native.py builds them, and each prints what it has tested."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NATIVE = ROOT / "core" / "native.py"
pytestmark = pytest.mark.slow  # it compiles the core


def run(*arguments: str | Path) -> str:
    done = subprocess.run([sys.executable, NATIVE, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needs(*names: str) -> None:
    if not any(map(shutil.which, names)):
        pytest.skip(f"There is no {names[0]}.")


def test_golden_frames_corners_and_damage_in_c() -> None:
    needs("cc", "gcc", "clang")
    assert "golden frames" in run("test")


def test_the_same_with_sanitizers() -> None:
    needs("gcc", "cc")
    assert "golden frames" in run("sanitize")


def test_the_same_on_another_processor() -> None:
    needs("aarch64-linux-gnu-gcc")
    needs("qemu-aarch64-static", "qemu-aarch64")
    assert "Vectors 0 to 0" in run("aarch64")


def test_each_target_is_fuzzed_for_a_minute(tmp_path: Path) -> None:
    needs("clang", "clang-14")
    lines = run("fuzz", "--minutes", "8", "--record", tmp_path / "counts.json").splitlines()
    assert len(lines) == 8
    assert all("0 findings" in line for line in lines)
