"""Structure-aware fuzzing of frames, orders, replies, parcels and states, without any other tool.

    python fuzz/mutate.py --minutes 10

The core alone, with sanitizers, is fuzzed by core/native.py; `make fuzz` does both.

Mutants have right checksums. Findings are: an exception other than this package's, a decoded value or a sum that is not
finite or above the documented bound, a sum that a refused frame changed, a difference to the reference decoder in
tests/, more than 1 s or 64 MB for one of them. They are written to fuzz/findings/, and the exit code is then 1.

The counts go to evidence/records/fuzz/mutate.json. Batches are numbered, and a run resumes behind the last one;
several processes may share it. A run in another clone continues the counts of that clone's file, so that its file
replaces this one. Slow oracles see a share of the mutants (fuzz/oracles.py); `checks` in the file says how many.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BATCH = 5_000  # small, so that a run that is stopped loses little


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--state", type=Path, default=ROOT / "evidence" / "records" / "fuzz" / "mutate.json")
    parser.add_argument("--findings", type=Path, default=ROOT / "fuzz" / "findings")
    parser.add_argument("--batch", type=int, help="repeat the batch of this number, and write no counts")
    options = parser.parse_args(arguments)
    os.environ.setdefault("ADAQUANTFL_THREADS", "1")
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    from fuzz import batch

    found = 0
    if options.batch is not None:
        return 1 if _save(batch.run(options.batch, BATCH).findings, options, options.batch) else 0
    end = time.monotonic() + 60 * options.minutes
    while time.monotonic() < end:
        number = _update(options.state, None)
        begun = time.process_time()
        done = batch.run(number, BATCH)
        found += _save(done.findings, options, number)
        _update(
            options.state,
            {
                "executions": done.executions,
                "accepted": done.accepted,
                "findings": len(done.findings),
                "seconds": round(time.process_time() - begun, 1),
                "checks": done.checks,
                "targets": done.targets,
                "refused": done.refused,
                "slowest_seconds": round(done.slowest, 3),
                "most_memory_mb": round(done.most_memory / 2**20, 2),
            },
        )
    counts = json.loads(options.state.read_text())
    print(f"{counts['executions']:,} executions, {counts['accepted']:,} accepted, {counts['findings']} findings")
    return 1 if found else 0


def _update(path: Path, counts: dict[str, Any] | None) -> int:
    """Add a batch's counts to the file, or take the number of the next batch, which is returned."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        total = json.loads(file.read() or '{"next_batch": 0}')
        number: int = total["next_batch"]
        if counts is None:
            total["next_batch"] += 1
        for name, value in (counts or {}).items():
            if isinstance(value, dict):
                total[name] = dict(sorted((Counter(total.get(name, {})) + Counter(value)).items()))
            elif name.startswith(("slowest", "most")):
                total[name] = max(total.get(name, 0), value)
            else:
                total[name] = round(total.get(name, 0) + value, 1) if name == "seconds" else total.get(name, 0) + value
        file.truncate(0)
        file.write(json.dumps(total, indent=2) + "\n")
    return number


def _save(findings: list[tuple[str, bytes]], options: argparse.Namespace, number: int) -> int:
    """Write findings to files: the bytes, and beside them what was found."""
    for words, data in findings:
        options.findings.mkdir(parents=True, exist_ok=True)
        path = options.findings / hashlib.sha256(data).hexdigest()[:16]
        path.with_suffix(".bin").write_bytes(data)
        path.with_suffix(".txt").write_text(f"{words}\nbatch {number}\n")
        print(f"{path.name}: {words}", file=sys.stderr, flush=True)
    return len(findings)


if __name__ == "__main__":
    sys.exit(main())
