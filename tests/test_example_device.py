"""examples/device: frames without Python, in C and in JavaScript, read golden frames."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import adaquantfl as aq

ROOT = Path(__file__).parents[1]
DEVICE = ROOT / "examples" / "device"
GOLDEN = ROOT / "tests" / "codecs" / "golden"
PAGE = (ROOT / "docs" / "how-to" / "transport.md").read_text()


def run(command: str | list[str | Path], folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    shell = isinstance(command, str)
    return subprocess.run(command, cwd=folder, shell=shell, capture_output=True, text=True, check=False)


def test_the_c_example_prints_the_mean(tmp_path: Path) -> None:
    if not shutil.which("cc"):
        pytest.skip("There is no C compiler.")
    (block,) = re.findall(r"```bash\n(.+?)```", PAGE, re.DOTALL)
    compiles, _ = block.replace("\\\n", " ").strip().splitlines()
    done = run(compiles.replace("-O2", "-O0").replace("-o mean", f"-o {tmp_path / 'mean'}"))
    assert done.returncode == 0, done.stderr
    for name in ("fixed-buckets", "sparse-list", "dense-pairs"):
        path = GOLDEN / f"{name}.bin"
        vector = aq.decode(path.read_bytes()).dequantize()
        words = run([tmp_path / "mean", path]).stdout.split()
        assert int(words[0]) == len(vector)
        assert float(words[-1]) == pytest.approx(vector.mean(dtype=float), rel=1e-6)
    done = run([tmp_path / "mean", GOLDEN / "eden.bin"])
    assert (done.returncode, "refused" in done.stderr) == (1, True)


def test_golden_frames_in_javascript() -> None:
    if not shutil.which("node"):
        pytest.skip("There is no Node.js.")
    done = run(["node", DEVICE / "test.mjs", GOLDEN])
    assert done.returncode == 0, done.stderr
    read, refused = map(int, re.findall(r"\d+", done.stdout))
    assert read > 20
    assert refused > 1000
