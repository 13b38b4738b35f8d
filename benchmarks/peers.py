"""AdaQuantFL beside other libraries that make vectors small: bytes at equal error, and speed, in one run.

    python benchmarks/peers.py [--env DIR] [--peers zstandard,hivemind] [--out evidence/records/benchmarks/peers.json]

The peers get a virtual environment of their own (--env; made once, then used again) and are measured there by
peer_worker.py; AdaQuantFL is measured here, in turn with each of them, on the same vectors, both in CPU time of one
thread. How a peer is called is in peer_methods.py, what is installed in peer_env.py, how AdaQuantFL's setting is found
in peer_match.py.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import adaquantfl as aq
from adaquantfl.training import datasets
from common import cnn_updates as updates
from common import record
from peer_env import STEPS, build, failures, python_of, without_folders
from peer_match import KEY, LONG, Curve, Match, Timed, TimedLevels, curves, picks

HERE = Path(__file__).parent
D, LARGE = 1_663_370, 11_181_642
REPEAT = 3
PATIENCE = 4.0  # CPU seconds for the repetitions of a method on a vector
TOO_SLOW = 4.0  # CPU seconds that a method may take on a vector and still be tried on the next
LIBRARIES = ("OMP", "MKL", "OPENBLAS", "NUMBA", "NUMEXPR")
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in LIBRARIES} | {"QUANTIZATION_THREADS": "1"}  # hivemind's
# The levels that lossless coders are given: few of many, some, and many non-zero.
LEVELS = (("whole", 3), (512, 15), (512, 127))
Vector = npt.NDArray[np.float32]


class Worker:
    """The process in the peers' environment."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [str(python_of(folder)), str(HERE / "peer_worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "worker.log").open("w"),
            text=True,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": "", "PYTHONWARNINGS": "ignore"},
        )

    def ask(self, **order: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            return {"failed": "The process ended."}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


class Vectors:
    """The vectors, as arrays here and as files for the worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "vectors"
        self.folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(0)
        self.arrays: dict[str, npt.NDArray[Any]] = {
            "gaussian": rng.standard_normal(D, dtype=np.float32),
            "laplace": rng.laplace(size=D).astype(np.float32),
        }
        self.tensors: dict[str, list[int]] = {"gaussian": [D], "laplace": [D], "large": [LARGE]}
        self.arrays["cnn"], self.tensors["cnn"] = self._update()
        self.arrays["large"] = rng.standard_normal(LARGE, dtype=np.float32)
        self.curves: dict[str, list[Curve]] = {}
        for name, x in self.arrays.items():
            self.save(name)
            self.curves[name] = curves(x, self.tensors[name])

    def _update(self) -> tuple[Vector, list[int]]:
        """A client's update of the CNN after 20 rounds, made once."""
        kept = self.folder / "update.npz"
        if not kept.exists():
            (_, update, layout), *_ = updates((20,))
            np.savez(kept, update=update, tensors=np.array(layout.lengths))
        loaded = np.load(kept)
        return loaded["update"], loaded["tensors"].tolist()

    def save(self, name: str) -> None:
        np.save(self.folder / f"{name}.npy", self.arrays[name])

    def path(self, name: str) -> str:
        return str(self.folder / f"{name}.npy")


def compare(worker: Worker, ours: dict[str, Timed | TimedLevels]) -> dict[str, Any]:
    """The peer and ours in turn: medians in seconds, and of the ratios within each turn."""
    turns: list[dict[str, dict[str, float]]] = []
    spent = 0.0
    while len(turns) < REPEAT and (len(turns) < 1 or spent < PATIENCE):
        turn = {"peer": worker.ask(do="time")}
        if "failed" in turn["peer"]:
            return {"failed": turn["peer"]["failed"]}
        turn.update({name: timed.seconds() for name, timed in ours.items()})
        spent += turn["peer"]["encode"] + turn["peer"]["decode"]
        turns.append(turn)
    return summary(turns)


def summary(turns: Sequence[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Medians over the turns.

    >>> peer, ours = {"copy": 1.0, "encode": 6.0, "decode": 2.0}, {"copy": 1.0, "encode": 3.0, "decode": 4.0}
    >>> summary([{"peer": peer, "small": ours}])["small"]
    {'copy': 1.0, 'encode': 3.0, 'decode': 4.0, 'encode_times': 2.0, 'decode_times': 0.5}
    """
    out: dict[str, Any] = {"turns": len(turns)}
    for who in turns[0]:
        seconds = {step: statistics.median(turn[who][step] for turn in turns) for step in ("copy", "encode", "decode")}
        times = {
            f"{step}_times": statistics.median(turn["peer"][step] / turn[who][step] for turn in turns)
            for step in ("encode", "decode")
            if who != "peer"
        }
        out[who] = {**seconds, **times}
    return out


def row(
    worker: Worker, number: int, method: dict[str, Any], name: str, vectors: Vectors, near: dict[str, Any]
) -> dict[str, Any]:
    """A method on a vector, and the best of our choices against it; `near`: what was best on a shorter one."""
    base = {"peer": method["peer"], "method": method["name"], "vector": name, "d": len(vectors.arrays[name])}
    found = worker.ask(do="open", method=number, vector=vectors.path(name), lengths=vectors.tensors[name])
    if "failed" in found:
        return {**base, "failed": without_folders(found["failed"])}
    x, biased = vectors.arrays[name], method["rounding"] != "random"
    best: dict[str, Match] = {}
    if 0 < found["error"] < (1 if biased else math.inf):  # 1 is the error of sending nothing
        guesses = guesses_for(near, len(x) / D) if near else {}
        tried = [curve for curve in vectors.curves[name] if not near or curve.choice.title in guesses]
        limit = found["bytes"]
        found_by_curve = (
            curve.matches(found["error"], biased, limit, guesses.get(curve.choice.title, 0.0)) for curve in tried
        )
        best = picks(x, [match for several in found_by_curve for match in several], limit)
    measured = compare(worker, {who: Timed(x, match.sender) for who, match in best.items()})
    ours = {who: match.to_dict() for who, match in best.items()}
    return fastest_last({**base, **found, "ours": ours, "seconds": measured})


def fastest_last(row: dict[str, Any]) -> dict[str, Any]:
    """The row with our smallest as our fastest too, where it was the faster of the two after all.

    >>> seconds = {"small": {"encode": 1.0, "decode": 1.0}, "fast": {"encode": 2.0, "decode": 0.5}}
    >>> both = {"bytes": 9, "ours": {"small": {"bytes": 8}, "fast": {"bytes": 9}}, "seconds": seconds}
    >>> fastest_last(both)["ours"]["fast"], fastest_last({**both, "bytes": 7})["ours"]["fast"]
    ({'bytes': 8}, {'bytes': 9})
    """
    ours, seconds = row["ours"], row["seconds"]
    if not {"small", "fast"} <= set(ours) & set(seconds) or ours["small"]["bytes"] > row["bytes"]:
        return row
    small, fast = (seconds[who]["encode"] + seconds[who]["decode"] for who in ("small", "fast"))
    if small >= fast:
        return row
    return {**row, "ours": {**ours, "fast": ours["small"]}, "seconds": {**seconds, "fast": seconds["small"]}}


def guesses_for(near: dict[str, Any], longer: float) -> dict[str, float]:
    """Where to look for s on a vector so many times as long, by choice.

    Long buckets are tried too: one norm of everything, which grows like the root of the length, may be too coarse.

    >>> guesses_for({"small": {"choice": "whole, lattice", "s": 100.0}}, 4.0)
    {'whole, lattice': 200.0, 'buckets of 65536, lattice': 0.0}
    """
    found = {
        ours["choice"]: ours["s"] * (longer**0.5 if ours["choice"].startswith("whole") else 1.0)
        for ours in near.values()
    }
    return {**found, LONG.title: found.get(LONG.title, 0.0)}


def level_row(
    worker: Worker, number: int, method: dict[str, Any], scope: str | int, s: int, vectors: Vectors
) -> dict[str, Any]:
    """A lossless coder on the levels of the Gaussian."""
    x = vectors.arrays["gaussian"]
    segments = None if scope == "whole" else aq.bucket_lengths(len(x), int(scope))
    levels = aq.quantize(x, s, KEY, segments)
    name = f"levels-{scope}-{s}"
    vectors.arrays[name], vectors.tensors[name] = levels.values, [len(x)]
    vectors.save(name)
    base = {"peer": method["peer"], "method": method["name"], "scope": scope, "s": s, "d": len(x)}
    found = worker.ask(do="open", method=number, vector=vectors.path(name), lengths=[len(x)])
    if "failed" in found:
        return {**base, "failed": without_folders(found["failed"])}
    mine = TimedLevels(levels)
    sizes = {"bytes": found["bytes"], "our_bytes": len(mine.frame), "exact": found["error"] == 0}
    return {**base, **sizes, "seconds": compare(worker, {"small": mine})}


def rows_of(worker: Worker, number: int, method: dict[str, Any], vectors: Vectors) -> list[dict[str, Any]]:
    if method["integers"]:
        return [level_row(worker, number, method, scope, s, vectors) for scope, s in LEVELS]
    rows: list[dict[str, Any]] = []
    for name in ("cnn", "gaussian", "laplace", "large"):
        near = rows[1].get("ours", {}) if name == "large" else {}
        rows.append(row(worker, number, method, name, vectors, near))
        seconds = rows[-1].get("seconds", {}).get("peer", {"encode": 0.0, "decode": 0.0})
        if seconds["encode"] + seconds["decode"] > TOO_SLOW:
            break
    return rows


def measure(folder: Path, wanted: Sequence[str], rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What is known after each method, with the rows that are there already; the last is everything."""
    done = {(item["peer"], item["method"]) for item in rows}
    vectors, worker = Vectors(folder), Worker(folder)
    try:
        listed = worker.ask(do="methods")
        names = [(method["peer"], method["name"]) for method in listed["methods"]]

        def known() -> dict[str, Any]:
            in_order = sorted(rows, key=lambda item: names.index((item["peer"], item["method"])))
            return {**about(listed, wanted), "rows": in_order}

        yield known()
        for number, method in enumerate(listed["methods"]):
            if (not wanted or method["peer"] in wanted) and names[number] not in done:
                new = rows_of(worker, number, method, vectors)
                rows += new
                print(method["peer"], method["name"], *(brief(item) for item in new), sep="\n  ", flush=True)
                yield known()
                if worker.process.poll() is not None:
                    worker = Worker(folder)
    finally:
        worker.close()


def about(listed: dict[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    names = {method["peer"] for method in listed["methods"]} & set(listed["versions"])
    return {
        "methods": [method for method in listed["methods"] if not wanted or method["peer"] in wanted],
        "peer_versions": {name: listed["versions"][name] for name in sorted(names)},
    }


def brief(item: dict[str, Any]) -> str:
    where = item.get("vector") or f"{item['scope']}, s = {item['s']}"
    if "failed" in item:
        return f"{where}: failed: {item['failed']}"
    text = f"{where}: {item['bytes']:,} bytes"
    for who, match in item.get("ours", {"small": {"bytes": item.get("our_bytes")}}).items():
        times = item["seconds"][who]
        text += (
            f"; {who} {match['bytes'] / item['bytes']:.3f} of them, "
            f"{times['encode_times']:.2f}x and {times['decode_times']:.2f}x as fast"
        )
    return text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--env", type=Path, default=datasets.folder() / "peers", help="folder of the peers' environment"
    )
    parser.add_argument("--peers", default="", help="only these, by their names on PyPI, with commas")
    parser.add_argument("--out", type=Path, help="also write the record to this JSON file")
    parser.add_argument("--no-install", action="store_true", help="use the environment as it is")
    parser.add_argument("--resume", action="store_true", help="keep what the record at --out has already")
    given = parser.parse_args()
    only = [name for name in given.peers.split(",") if name]
    if not given.no_install:
        build(given.env, [step for step in STEPS if not only or step.peer in only])
    aq.set_threads(1)
    kept = json.loads(given.out.read_text())["rows"] if given.resume else []
    for found in measure(given.env, only, kept):
        record(given.out, {"not_installed": failures(given.env), **found}, quiet=True)
