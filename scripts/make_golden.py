"""Write the golden frames of tests/codecs/golden: the bytes of wire format version 1, and what is in them.

Frames that are there already stay as they are: bytes that change are a new format version, not a new golden file.
"""

import argparse
import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import adaquantfl as aq
from adaquantfl.quantizers.registry import find

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "codecs" / "golden"
EXPECTED = FOLDER / "expected.json"
Entry = dict[str, Any]

EXAMPLE = [0, 0, 0, 1, *[0] * 36, -5, 2, *[0] * 57, -1]  # of the sparse code, in docs/wire-format.md
# name: codec, s, levels, scales, lengths of the segments
LEVELS: dict[str, tuple[str, int, list[int], list[float], list[int] | None]] = {
    "fixed-one-bit-levels": ("fixed", 1, [1, 0, -1, -1, 0, 1, 1], [2.5], None),
    "fixed-block-and-tail": ("fixed", 5, [7 * i % 11 - 5 for i in range(1061)], [1.0], None),
    "fixed-most-levels": ("fixed", 65_535, [65_535, -65_535, 0, 1, -1], [3.0], None),
    "fixed-buckets": ("fixed", 3, [1, -3, 0, 2, 3, 3, 0, -1, 0, 1], [1.0, 0.5, 0.0], [4, 4, 2]),
    "sparse-example": ("sparse", 5, EXAMPLE, [1.0], None),
    "sparse-zeros": ("sparse", 1, [0] * 1000, [0.0], None),
    "sparse-empty-chunk": ("sparse", 2, [0] * 60_000 + [1] * 9000 + [0] * 71_000 + [-2] * 60, [1.0], None),
    "sparse-long-gap": ("sparse", 65_535, [1, -2, 3] * 300 + [0] * 60_000 + [65_535, 0, -65_535], [1e-30], None),
    "sparse-list": ("sparse", 4, [0, 4] + [0] * 199 + [-1, 0, 2], [2.0, 0.25, 1e30], [1, 200, 3]),
    "dense-example": ("dense", 2, [1, 0, 0, -1, 0, 2], [1.0], None),
    "dense-one-chunk": ("dense", 9, [0] * 50_000 + [1, -1] * 50 + [9] * 15_436 + [0, 0, -9, 2, 2], [1.0], None),
    "dense-low-bits": ("dense", 65_535, [37 * i * i % 131_071 - 65_535 for i in range(300)], [7.0], None),
    "dense-pairs": ("dense", 9, [0] * 90_000 + [1] * 40_000 + [-1] * 19_000 + [0, 2, -3] * 333, [1.0], None),
    "dense-levels": (
        "dense",
        300,
        [level for level in range(-24, 24, 3) for _ in range(8_700)] + list(range(200, 232)),
        [2.0],
        None,
    ),
    "auto-one-element": ("auto", 100, [-37], [0.125], None),
}
# name: codec, s, key, whole numbers, whose norms are exact, lengths of the segments
COMPRESSED: dict[str, tuple[str, int, int, list[int], list[int] | None]] = {
    "compress-fixed": ("fixed", 4, aq.stream_key(1, 2, 3), [3, -4, 12, 0, 84, -1], None),
    "compress-sparse": ("sparse", 2, aq.stream_key(4, 5, 6), [i % 7 - 3 for i in range(200)], [60, 1, 139]),
    "compress-auto": ("auto", 60, aq.stream_key(7, 8, 9), [i * i % 101 - 50 for i in range(150)], [64, 64, 22]),
}
KEY = aq.stream_key(10, 11, 12)
SMALL = [1, 0, -2, 2, 0, -1, 1, 1, -2, 1, 2, -1]
# name: quantizer, norm, codec, s, levels, scales, lengths of the segments, further numbers
RIVALS: dict[str, tuple[str, str, str, int, list[int], list[float], list[int] | None, list[float] | None]] = {
    "uniform-linf": ("uniform", "linf", "fixed", 2, SMALL, [0.5], None, None),
    "rotated-linf": ("rotated", "linf", "dense", 2, SMALL, [1.0, 0.25], [8, 4], None),
    "rotated-l2": ("rotated", "l2", "fixed", 3, SMALL[:8], [2.0], None, None),
    "lattice-l2": ("lattice", "l2", "fixed", 1, [4, -4, 3, 0, 1, 2, -1], [1.0, 2.0], [3, 4], None),
    "lattice-linf": ("lattice", "linf", "dense", 9, SMALL, [1.0], None, None),
    "eden": ("eden", "", "dense", 2, [1, -1, 2, 1, -2, -1, 1, 2], [0.5, 0.0], [4, 4], None),
    "centroid": ("centroid", "", "sparse", 1, [0, 0, 8, 0, -1, 0, 0, 0, 1], [0.5, 4.0], [8, 1], [2.0]),
    "terngrad": ("terngrad", "linf", "fixed", 1, [1, 0, -1], [0.125], None, None),
    "natural-l2": ("natural", "l2", "fixed", 10, [10, -9, 0, 1], [3.0], None, None),
    "natural-linf": ("natural", "linf", "fixed", 127, [127, -126, 0, 1], [1.0], None, None),
    "stc": ("stc", "", "sparse", 400, [0] * 500 + [1, -1], [0.01], None, None),
    "nearest": ("nearest", "linf", "fixed", 127, [127, -126, 0, 1], [1.0, 0.5], [3, 1], None),
    "fitted": ("fitted", "linf", "sparse", 3, [3, 0, 0, -1, 0, 2], [1.5, 0.75], [4, 2], None),
}
FLOAT32 = [0.0, 1.5, -2.0, 1e-45, -3.4028234663852886e38]


def frames() -> dict[str, tuple[bytes, Entry]]:
    """Every frame with the line about it in expected.json."""
    made: dict[str, tuple[bytes, Entry]] = {}
    for name, (codec, s, values, scales, segments) in LEVELS.items():
        scale = np.array(scales, dtype=np.float32)
        whole = segments is None
        lengths = None if whole else np.array(segments, dtype=np.int64)
        levels = aq.Levels(np.array(values), scale[0] if whole else scale, s, lengths)
        made[name] = aq.encode(levels, codec), {"codec": codec} | describe(levels)
    for name, (codec, s, key, x, segments) in COMPRESSED.items():
        vector = np.array(x, dtype=np.float32)
        levels = aq.quantize(vector, s, key, segments)
        made[name] = (
            aq.compress(vector, s, key, codec, segments),
            {"codec": codec, "key": key, "x": x} | describe(levels),
        )
    for name, (quantizer, norm, codec, s, values, scales, segments, numbers) in RIVALS.items():
        scale, lengths = np.array(scales, dtype=np.float32), None if segments is None else np.array(segments)
        levels = aq.Levels(
            np.array(values),
            scale[0] if segments is None else scale,
            s,
            lengths,
            quantizer,
            norm,
            KEY if find(quantizer).traits.keyed else None,
            None if numbers is None else numbers[0],
        )
        further = {"quantizer": quantizer, "norm": norm, "key": levels.key, "numbers": numbers}
        floats = [float(f"{value:.6g}") for value in levels.dequantize()[-16:]]
        made[name] = aq.encode(levels, codec), {"codec": codec} | further | describe(levels) | {"floats": floats}
    exact = np.array(FLOAT32, dtype=np.float32)
    made["float32"] = aq.encode_float32(exact), {"codec": "float32", "x": exact.tolist()}
    return made


def describe(levels: aq.Levels) -> Entry:
    """What a decoder must find; the levels as runs [level, times]."""
    values = levels.values.tolist()
    edges = [i for i in range(len(values)) if i == 0 or values[i] != values[i - 1]] + [len(values)]
    runs = [[values[a], b - a] for a, b in pairwise(edges)]
    segments = None if levels.segments is None else levels.segments.tolist()
    return {"s": levels.s, "segments": segments, "scales": levels.scales.tolist(), "runs": runs}


def changed(made: dict[str, tuple[bytes, Entry]]) -> list[str]:
    """The frames that are there already and would become others."""
    known: dict[str, Entry] = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    bytes_differ = [n for n, (frame, _) in made.items() if path(n).exists() and path(n).read_bytes() != frame]
    return sorted({*bytes_differ, *(n for n in known if n not in made or known[n] != made[n][1])})


def path(name: str) -> Path:
    return FOLDER / f"{name}.bin"


def main() -> int:
    """Write the frames that are missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--force", action="store_true", help="overwrite frames that would change")
    force = parser.parse_args().force
    made = frames()
    if (others := changed(made)) and not force:
        print(f"Refused, nothing is written: these golden frames would change: {', '.join(others)}.", file=sys.stderr)
        print(
            "A change of bytes is a new format version: raise VERSION in src/adaquantfl/codecs/frame.py, describe it "
            "in docs/wire-format.md, and only then run this again with --force.",
            file=sys.stderr,
        )
        return 1
    FOLDER.mkdir(exist_ok=True)
    for name, (frame, _) in made.items():
        path(name).write_bytes(frame)
    lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, (_, entry) in made.items()]
    EXPECTED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(made)} golden frames in {FOLDER}, {sum(len(frame) for frame, _ in made.values()):,} bytes.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
